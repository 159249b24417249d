"""The search of transactions: it holds for the core, and finds each rule that is removed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.serving.produce_checks import UnverifiedBatch, Verification
from strandline_sim.searches.transactions import (
    Result,
    TransactionBounds,
    coordinator,
    partition,
    search,
    world as world_of,
)
from strandline_sim.searches.transactions.steps import successors
from strandline_sim.searches.transactions.world import (
    Late,
    LateBatch,
    LateEnd,
    LateMarker,
    LateQuestion,
    TransactionWorld,
    check,
    check_end,
    check_step,
    exchanged,
    start,
)

RUN = CliRunner()


def _forget() -> None:
    for clear in (*coordinator.CACHED, *partition.CACHED, *world_of.CACHED):
        clear()


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    """A test that removes a rule must not meet decisions of another, nor leave its own."""
    _forget()
    yield
    _forget()


def _search() -> Result:
    return search(TransactionBounds(transactions=2, mishaps=1), max_states=8_000)


def test_a_small_world_is_searched_to_its_end() -> None:
    """One transaction and one mishap: I36 to I38 and L13 hold in all worlds that there are."""
    result = search(TransactionBounds(transactions=1, mishaps=1))

    assert result.violation == ""
    assert (result.exhausted, result.states, result.depth) == (True, 8_513, 17)


def test_the_first_worlds_of_two_transactions_hold() -> None:
    """Two transactions and one mishap: I36 to I38 hold as far as this search reaches."""
    result = _search()

    assert result.violation == ""
    assert result.states >= 8_000


FIRST = (
    "the producer's batch arrives at p0",
    "the question of p0 arrives: NONE",
    "the coordinator's answer arrives at p0",
    "everything in p0 is committed",
    "the producer commits",
    "the commit of epoch 0 arrives and is done",
    "a marker arrives at p0",
    "everything in p0 is committed",
)
"""A first transaction in one partition, without a mishap."""


@pytest.mark.parametrize(
    ("kind", "until"),
    [(LateBatch, 1), (LateQuestion, 1), (LateEnd, 5), (LateMarker, 6)],
    ids=["batch", "question", "end", "marker"],
)
def test_a_late_copy_of_the_first_transaction_changes_nothing(kind: type[Late], until: int) -> None:
    """The transaction is ended, and one copy of what it sent is on its way: I36 to I38 hold from there on."""
    bounds, world = TransactionBounds(transactions=2, mishaps=1), start()
    for name in FIRST[:until]:
        world = dict(successors(world, bounds))[name]
    world = next(after for _, after in successors(world, bounds) if any(type(each) is kind for each in after.late))
    for name in FIRST[until:]:
        world = dict(successors(world, bounds))[name]

    assert search(bounds, begin=world, max_states=1_500).violation == ""


def test_partitions_are_alike() -> None:
    """What follows a world with exchanged partitions is what follows the world, exchanged."""
    bounds = TransactionBounds()
    worlds = [start()]
    for world in worlds[:80]:
        worlds += [after for _, after in successors(world, bounds)]

    for world in worlds[:200:4]:
        ours = {exchanged(after) for _, after in successors(world, bounds)}
        assert ours == {after for _, after in successors(exchanged(world), bounds)}


_waited = Verification.answered


def _first_that_waits(self: Verification[UnverifiedBatch], correlation_id: int) -> deque[UnverifiedBatch]:
    """The first request that waits, without the batch that was asked about if it is gone: that has the number 0."""
    return deque(batch for batch in _waited(self, correlation_id) if batch.call.request_id)


def test_an_answer_about_another_transaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """X9: the batch that was asked about is gone when the answer comes, which lets in a batch of the next transaction:
    it is never ended, because its coordinator does not know of this partition."""
    monkeypatch.setattr(Verification, "answered", _first_that_waits)
    bounds, world = TransactionBounds(transactions=2, mishaps=1), start()
    for name in (
        *FIRST[:2],
        "the producer aborts",
        "the abort of epoch 0 arrives and is done",
        "what waits in p0 waited too long",
    ):
        world = dict(successors(world, bounds))[name]

    assert search(bounds, begin=world, max_states=3_000).violation.startswith(("I38", "L13"))


def test_a_trace_can_be_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a trace follows the one before it, and then what was found is broken."""
    monkeypatch.setattr(ReplicaLog, "lso", property(lambda self: self.hw))
    result = _search()
    world = start()
    for name in result.trace:
        world = _the_step(world, name, result.bounds)

    with pytest.raises(AssertionError, match="I36"):
        _check_all(world, result.bounds)


def _the_step(world: TransactionWorld, name: str, bounds: TransactionBounds) -> TransactionWorld:
    """The trace is one of worlds up to exchanged partitions, so either may have the step."""
    for each in (world, exchanged(world)):
        for step, after in successors(each, bounds):
            if step == name:
                return after
    raise AssertionError(f"no step {name}")


def _check_all(world: TransactionWorld, bounds: TransactionBounds) -> None:
    onward = [after for _, after in successors(world, bounds)]
    for after in onward:
        check_step(world, after)
        check(after)
    if not onward:
        check_end(world, bounds)


def test_the_command_says_how_far_it_came() -> None:
    """A search that was stopped reports that, and does not count as complete."""
    result = RUN.invoke(app, ["sim", "transactions", "--states", "300"])

    assert result.exit_code == 0, result.output
    assert "holds, not searched to the end" in result.output
