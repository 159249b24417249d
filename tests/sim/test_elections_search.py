"""The search of elections after losses: it holds for the core, and finds a rule that is removed from it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.core.control import election
from strandline.core.control.election import Elected, HasRoom, IsActive
from strandline.core.messages import PartitionImage
from strandline_sim.searches.elections import ElectionBounds, search
from strandline_sim.searches.elections.model import successors
from strandline_sim.searches.elections.world import NODES, ElectionState, canonical, renumbered, start

RUN = CliRunner()


def test_the_first_states_hold() -> None:
    """In any few steps with one loss, no leader lacks a committed record."""
    result = search(ElectionBounds(records=2, max_leader_epoch=3), max_states=3_000)

    assert result.violation == ""
    assert result.states >= 3_000


def test_every_state_of_a_leader_that_is_never_replaced_is_seen() -> None:
    """With leader epoch 0 alone the search is complete, and nothing is broken."""
    result = search(ElectionBounds(records=1, max_leader_epoch=0))

    assert result.exhausted
    assert result.violation == ""


def test_trust_in_a_new_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An election that treats an unproven member as proven loses a committed record, in six steps (M64)."""
    honest = election.elect

    def trusting(partition: PartitionImage, is_active: IsActive, has_room: HasRoom) -> Elected | None:
        return honest(replace(partition, unproven=()), is_active, has_room)

    monkeypatch.setattr(election, "elect", trusting)
    result = search(ElectionBounds(records=1, max_leader_epoch=2))

    assert result.violation == "the leader lacks a committed record"
    assert len(result.trace) == 6


def test_a_trace_is_a_way_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a trace is one of the possible steps from the state before it, under the same numbers."""
    monkeypatch.setattr(
        election, "elect", lambda partition, *_: Elected(partition.replicas[-1], election.ElectionType.ISR)
    )
    result = search(ElectionBounds(records=1, max_leader_epoch=2))
    before = start()
    for name, after in result.trace:
        assert (name, after) in list(successors(before, ElectionBounds(records=1)))
        before = after
    assert result.trace


def test_numbers_of_replicas_change_nothing() -> None:
    """A state and its renumberings have one representative."""
    for state in _some_states(400):
        assert {canonical(renumbered(state, list(order))) for order in permutations(NODES)} == {canonical(state)}


def _some_states(count: int) -> list[ElectionState]:
    """States near the start, every ninth one, so that losses and elections are among them."""
    seen, frontier = {start()}, [start()]
    while len(seen) < 9 * count:
        frontier = [
            after
            for state in frontier
            for _, after in successors(state, ElectionBounds(records=2))
            if after not in seen
        ]
        seen.update(frontier)
        frontier = frontier[: 3 * count]
    return list(seen)[::9]


def test_the_command_says_how_far_it_came() -> None:
    """A search that was stopped reports that, and does not count as complete."""
    result = RUN.invoke(app, ["sim", "elections", "--records", "1", "--epochs", "1", "--states", "500"])

    assert result.exit_code == 0, result.output
    assert "holds, not searched to the end" in result.output
