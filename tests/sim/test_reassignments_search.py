"""The search of reassignments: I25 holds for the core, and a shortest trace shows each rule that is taken away."""

from __future__ import annotations

from itertools import permutations

import pytest
from mutants.record import MUTANTS
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline_sim.searches.elections import ElectionBounds, moving, search
from strandline_sim.searches.elections.model import successors
from strandline_sim.searches.elections.world import NODES, canonical, renumbered

BY_NUMBER = {each.number: each for each in MUTANTS}
SMALL = moving(1, 0, 1, (2,), 1)
"""From one replica to two, without an election: nothing is removed, because that begins a leader epoch."""


def test_every_state_of_a_growing_partition_holds() -> None:
    """While a replica is added, cancels, deaths and restarts lose no copy, and the command counts the same states."""
    result = search(SMALL)
    command = ["sim", "reassignments", "--epochs", "0", "--replicas", "1", "--target", "2"]
    shown = CliRunner().invoke(app, command)

    assert (result.violation, result.exhausted) == ("", True)
    assert shown.exit_code == 0, shown.output
    assert f"holds, searched to the end, {result.states:,} states, {result.depth} steps deep" in shown.output


def test_the_first_states_of_a_move_hold() -> None:
    """From [0, 1] to other nodes, with elections and a lost answer: in any few steps nothing is lost."""
    result = search(moving(1, 2, 2, (2,), 2, lost_answers=1), max_states=3_000)

    assert result.violation == ""


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_every_state_of_a_move_holds() -> None:
    """From one node to another one, with one election, end or cancel: every reachable state keeps I25 and P1."""
    result = search(moving(1, 1, 1, (1,), 1))

    assert (result.violation, result.exhausted) == ("", True)


@pytest.mark.parametrize(
    ("number", "bounds", "broken", "length"),
    [
        ("94", moving(1, 0, 1, (3,), 1, raised_min_isr=2), "min ISR is 2 with 1 replicas that are not being added", 2),
        ("R95", moving(1, 1, 1, (2,), 1), "which it added, are not in the ISR", 1),
        ("R96", moving(1, 1, 1, (1,), 1), "lead, or are in ISR or ELR, and are not replicas", 3),
        ("R97", moving(1, 1, 1, (2,), 1), "lead, or are in ISR or ELR, and are not replicas", 4),
        ("98", moving(1, 1, 2, (2,), 2), "a cancel leaves replicas", 4),
        ("R99", moving(1, 1, 2, (1, 2), 1), "too few replicas hold what was committed", 6),
    ],
)
def test_a_rule_that_is_taken_away_is_missed(number: str, bounds: ElectionBounds, broken: str, length: int) -> None:
    """A shortest trace shows what the rule protects."""
    with BY_NUMBER[number].applied():
        result = search(bounds)

    assert broken in result.violation
    assert len(result.trace) == length


def test_numbers_of_nodes_change_nothing() -> None:
    """A state with a reassignment and its renumberings have one representative."""
    bounds = moving(1, 1, 2, (2,), 1, lost_answers=1)
    seen = {canonical(after) for _, after in successors(search(bounds, max_states=1).model.start(), bounds)}
    for _ in range(2):
        seen |= {canonical(after) for state in list(seen)[:60] for _, after in successors(state, bounds)}

    for state in list(seen)[:300]:
        assert {canonical(renumbered(state, list(order))) for order in permutations(NODES)} == {canonical(state)}
