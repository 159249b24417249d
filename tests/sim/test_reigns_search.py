"""The search of reigns: it holds for the core, and finds each rule that is removed from core or store."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.core.control.positions import Doubt
from strandline.core.reigns.effects import Append, AppendSettled, Settled
from strandline.core.reigns.events import Head, Holder
from strandline.core.reigns.reign import ReignCore
from strandline_sim.control import stored_values
from strandline_sim.searches.reigns import ReignBounds, Result, search
from strandline_sim.searches.reigns.model import exchanged
from strandline_sim.searches.reigns.steps import successors
from strandline_sim.searches.reigns.world import ReignBroken, ReignWorld, freeze, start, thaw, tidied

RUN = CliRunner()
RESTORED = ReignBounds(transactions=1, campaigns=1, endings=0, takings=0, late=0, restores=1)
BOUNDS = ReignBounds(transactions=2, campaigns=2, endings=1, takings=1, late=0)


def _search() -> Result:
    return search(BOUNDS, max_states=60_000)


def test_the_first_states_hold() -> None:
    """In any few steps with every kind of trouble, no invariant of reigns breaks."""
    result = search(ReignBounds(late=1), max_states=6_000)

    assert result.violation == ""
    assert result.states >= 6_000


def test_a_small_world_is_searched_to_its_end() -> None:
    """One reign, one transaction, every pause and every lost answer: I19 to I22 hold in all states that there are."""
    result = search(ReignBounds(transactions=1, campaigns=1, endings=0, takings=0, late=0))

    assert (result.exhausted, result.violation) == (True, "")
    assert (result.states, result.depth) == (5_338, 17)


def test_no_reign_on_a_restored_store_answers_an_administrator() -> None:
    """I41: whatever the store forgot, with the controllers' own files, a reign answers only after a node's word."""
    result = search(RESTORED)

    assert (result.exhausted, result.violation) == (True, "")
    assert result.states > 5_338


def test_administrators_answered_before_a_node_spoke_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 39: a reign waits for no node, and confirms what its store forgot."""
    monkeypatch.setattr(Doubt, "refusal", lambda self, request: None)
    result = search(RESTORED)

    assert result.violation.startswith("I41")
    assert "the store is put back to 0 transactions" in result.trace


def test_controllers_can_be_exchanged() -> None:
    """What follows an exchanged world is what follows the world, exchanged; so one of the two need not be searched."""
    bounds = ReignBounds(late=1)
    worlds = [start()]
    for world in worlds[:120]:
        worlds += [after for _, after in successors(world, bounds)]

    for world in worlds[:240]:
        assert exchanged(exchanged(world)) == world
        ours = {exchanged(after) for _, after in successors(world, bounds)}
        assert ours == {after for _, after in successors(exchanged(world), bounds)}


def test_a_trace_can_be_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a trace follows the one before it, and the violation comes next."""
    monkeypatch.setattr(
        stored_values,
        "key_after_taking",
        lambda key, token, taker: taker if key is not None and key.token == token else key,
    )
    worlds = [start()]
    for name in _search().trace:
        worlds.append(next(after for step, after in successors(worlds[-1], BOUNDS) if step == name))

    with pytest.raises(ReignBroken, match="I21"):
        list(successors(worlds[-1], BOUNDS))


def test_order_of_questions_and_old_sights_of_the_key_make_no_state() -> None:
    """Two controllers that behave alike are one value: exchanging two questions, or a sight of the key that is as new
    as the other for all that can still come, changes nothing."""
    worlds = [start()]
    for world in worlds[:200]:
        worlds += [after for _, after in successors(world, BOUNDS)]
    controllers = {each for world in worlds for each in world.controllers if len(each.calls) > 1}

    assert controllers
    for each in controllers:
        core = (*each.core[:-1], each.core[-1][::-1])
        assert tidied(each) == each
        assert tidied(each._replace(core=core, calls=each.calls[::-1])) == each


def test_append_without_the_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 27: a batch of a controller that reigns no more is written (TR22)."""

    def only_head(key: Holder | None, head: Head | None, token: int, after: int) -> bool:
        return (0 if head is None else head.revision) == after

    monkeypatch.setattr(stored_values, "may_append", only_head)
    result = _search()

    assert result.violation.startswith("I19")
    assert len(result.trace) == 5


def test_compare_that_the_key_exists_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 28: another controller holds the key, and the batch is written (TR23)."""

    def exists(key: Holder | None, head: Head | None, token: int, after: int) -> bool:
        return key is not None and (0 if head is None else head.revision) == after

    monkeypatch.setattr(stored_values, "may_append", exists)
    result = _search()

    assert result.violation.startswith("I19")
    assert len(result.trace) == 6


def test_head_that_is_not_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 30: a take-over that believes its watch begins without the last transaction (TR26)."""
    honest = ReignCore._won

    def believing(core: ReignCore, token: int, revision: int) -> None:
        honest(core, token, revision)
        assert core._reign is not None
        core._reign.head, core._reign.is_head_read = core.applied, True

    monkeypatch.setattr(ReignCore, "_won", believing)
    result = _search()

    assert result.violation.startswith("I22")
    assert len(result.trace) == 6


def test_key_taken_by_a_put_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 34: a put over the key keeps its create revision, and two controllers hold one token (TR24)."""
    monkeypatch.setattr(
        stored_values,
        "key_after_taking",
        lambda key, token, taker: taker if key is not None and key.token == token else key,
    )
    result = _search()

    assert result.violation.startswith("I21")
    assert len(result.trace) == 6


@pytest.mark.parametrize(("settled", "steps"), [(Settled.DONE, 6), (Settled.REFUSED, 5)])
def test_guess_at_an_unknown_outcome_is_found(monkeypatch: pytest.MonkeyPatch, settled: Settled, steps: int) -> None:
    """Mutants 29a and 29b: an append without an answer is taken for done, or for refused (TR25)."""
    honest = ReignCore._unanswered

    def guessing(core: ReignCore, event: Any, question: Any) -> None:
        batch = core._batch_of(question.effect) if isinstance(question.effect, Append) else None
        if batch is None:
            honest(core, event, question)
            return
        assert core._reign is not None
        if settled is Settled.DONE:
            core._done(core._reign, core.revision + 1)
        else:
            core._reign.batch = None
            core._out.append(AppendSettled(batch.head, settled))

    monkeypatch.setattr(ReignCore, "_unanswered", guessing)
    result = _search()

    assert result.violation.startswith("I20")
    assert len(result.trace) == steps


def test_value_of_a_core_is_the_core() -> None:
    """A core made from a value has that value, in all states near the start."""
    worlds: list[ReignWorld] = [start()]
    for world in worlds[:400]:
        worlds += [after for _, after in successors(world, BOUNDS)]

    for world in worlds[:2_000]:
        for controller in world.controllers:
            assert freeze(thaw(controller.core))[0] == controller.core


def test_the_command_says_how_far_it_came() -> None:
    """A search that was stopped reports that, and does not count as complete."""
    result = RUN.invoke(app, ["sim", "reigns", "--states", "500"])

    assert result.exit_code == 0, result.output
    assert "holds, not searched to the end" in result.output
