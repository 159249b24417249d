"""The search of rebalances: it holds for the core, and finds each rule that is removed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.core.groups import heartbeats, targets
from strandline.core.groups.group import Owners
from strandline_sim.searches import rebalances
from strandline_sim.searches.rebalances import RebalanceBounds, Result, check, search, successors

RUN = CliRunner()
SMALL = RebalanceBounds(epochs=2, restarts=0, partitions=1)


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> None:
    """A test that removes a rule must not meet decisions of another."""
    rebalances.decided.cache_clear()


def _search(epochs: int = 3, restarts: int = 0) -> Result:
    return search(RebalanceBounds(epochs=epochs, restarts=restarts, partitions=1), max_states=40_000)


def test_a_small_world_is_searched_to_its_end() -> None:
    """Two epochs, one partition that moves: I28 and I32 hold in all worlds that there are."""
    result = search(SMALL)

    assert (result.exhausted, result.violation) == (True, "")
    assert (result.states, result.depth) == (10_494, 28)


def test_the_first_worlds_of_all_hold() -> None:
    """Three epochs, three partitions, a restart: I28 and I32 hold as far as this search reaches."""
    result = search(RebalanceBounds(), max_states=15_000)

    assert result.violation == ""
    assert result.states >= 15_000


def test_partitions_can_be_exchanged() -> None:
    """What follows a world with exchanged partitions is what follows the world, exchanged."""
    bounds, (_, *others) = RebalanceBounds(), rebalances.exchanges(3)
    worlds = [rebalances.start()]
    for world in worlds[:60]:
        worlds += [after for _, after in successors(world, bounds)]

    for world in worlds[:150:3]:
        for how in others:
            ours = {_exchanged(after, how) for _, after in successors(world, bounds)}
            assert ours == {after for _, after in successors(_exchanged(world, how), bounds)}


def _exchanged(world: rebalances.RebalanceWorld, how: dict) -> rebalances.RebalanceWorld:  # type: ignore[type-arg]
    first, second = (rebalances.exchanged_client(client, how) for client in world.clients)
    return world._replace(rows=rebalances.exchanged_rows(world.rows, how), clients=(first, second))


def test_a_trace_can_be_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a trace follows the one before it, and then the invariant breaks."""
    monkeypatch.setattr(Owners, "is_free_for", lambda self, tp, member_id: True)
    result = _search()
    world = rebalances.start()
    for name in result.trace:
        world = next(after for step, after in successors(world, result.bounds) if step == name)

    with pytest.raises(AssertionError, match=r"I28|I32"):
        _check_all(world, result.bounds)


def _check_all(world: rebalances.RebalanceWorld, bounds: RebalanceBounds) -> None:
    for _, after in successors(world, bounds):
        check(after)


def test_a_partition_given_before_it_is_free_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant R51: what another still holds is given."""
    monkeypatch.setattr(Owners, "is_free_for", lambda self, tp, member_id: True)

    assert _search().violation.startswith("I28")


def test_a_report_that_is_not_asked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """G17: a heartbeat without a report taken for one that gives everything up."""
    honest = targets._holds_any
    monkeypatch.setattr(targets, "_holds_any", lambda owned, held: owned is not None and honest(owned, held))

    assert _search().violation.startswith("I32")


def test_partitions_that_are_free_with_the_rebalance_timeout_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant R85: a member that is removed for its slowness reads on until its lease ends."""
    monkeypatch.setattr(rebalances, "fence", lambda changes, member_id: heartbeats.remove(changes, member_id))

    assert _search().violation.startswith("I32")


def test_the_command_says_how_far_it_came() -> None:
    """A search that was stopped reports that, and does not count as complete."""
    result = RUN.invoke(app, ["sim", "rebalances", "--states", "500"])

    assert result.exit_code == 0, result.output
    assert "holds, not searched to the end" in result.output
