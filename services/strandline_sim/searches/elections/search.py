"""The search of elections after losses: states are one up to the numbers of their replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline_sim.searches import breadth_first
from strandline_sim.searches.breadth_first import Progress
from strandline_sim.searches.elections import control
from strandline_sim.searches.elections.steps import successors
from strandline_sim.searches.elections.world import State, canonical, is_stuck, lost_committed, start


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the searched world is: three replicas, min ISR 2, one loss, and these."""

    records: int = 2
    """Appends in all."""
    max_leader_epoch: int = 2
    """Leader epochs 0..this one; an epoch in which nobody leads is one, too."""

    def __str__(self) -> str:
        return f"3 replicas, {self.records} records, epochs 0..{self.max_leader_epoch}, one loss"


Result = breadth_first.Result[Bounds, tuple[str, State]]
"""What a search found; a step has the state after it."""


def search(bounds: Bounds, *, max_states: int | None = None, progress: Progress | None = None) -> Result:
    """Search until P1 is broken, all that are there cannot elect, nothing is left, or ``max_states`` were reached."""
    control.forget()
    return breadth_first.search(bounds, _Space(bounds), start(), max_states=max_states, progress=progress)


class _Space:
    """States up to the numbers of the replicas."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def after(self, state: State) -> Iterator[State]:
        """The states that can follow within the leader epochs."""
        for _, reachable in successors(state, self._bounds.records):
            if reachable.partition.leader_epoch <= self._bounds.max_leader_epoch:
                yield canonical(reachable)

    def check(self, state: State) -> None:
        """P1, and that replicas that are all there can elect."""
        assert not lost_committed(state), "the leader lacks a committed record"
        assert not is_stuck(state), "all replicas reported and nobody leads"

    def steps(self, states: Sequence[State]) -> list[tuple[str, State]]:
        """The steps from the start, with numbers of replicas that stay."""
        state, *way = states
        steps: list[tuple[str, State]] = []
        for wanted in way:
            name, state = next(step for step in successors(state, self._bounds.records) if canonical(step[1]) == wanted)
            steps.append((name, state))
        return steps
