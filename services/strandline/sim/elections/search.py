"""Breadth-first search: every state within the bounds, nearest first, so that a violation found is a shortest one.

Invariant: each state is kept with the one it was first reached from; a trace is read back from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.sim.elections import control
from strandline.sim.elections.steps import successors
from strandline.sim.elections.world import State, canonical, is_stuck, lost_committed, start

Progress = Callable[[int, int, int], None]
"""Called after each level with (depth, states so far, states of this level)."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the searched world is: three replicas, min ISR 2, one loss, and these."""

    records: int = 2
    """Appends in all."""
    max_leader_epoch: int = 2
    """Leader epochs 0..this one; an epoch in which nobody leads is one, too."""

    def __str__(self) -> str:
        return f"3 replicas, {self.records} records, epochs 0..{self.max_leader_epoch}, one loss"


@dataclass(slots=True)
class Result:
    """What a search found."""

    bounds: Bounds
    states: int = 0
    transitions: int = 0
    depth: int = 0
    exhausted: bool = False
    """Every reachable state within the bounds was seen."""
    violation: str = ""
    trace: list[tuple[str, State]] = field(default_factory=list)
    """The steps to it, each with the state after it."""


def search(bounds: Bounds, *, max_states: int | None = None, progress: Progress | None = None) -> Result:
    """Search until P1 is broken, all that are there cannot elect, nothing is left, or ``max_states`` were seen."""
    control.forget()
    result = Result(bounds)
    first = start()
    came_from: dict[State, State | None] = {first: None}
    frontier = [first]
    while frontier:
        reached: list[State] = []
        for state in frontier:
            for _, reachable in successors(state, bounds.records):
                result.transitions += 1
                if reachable.partition.leader_epoch > bounds.max_leader_epoch:
                    continue
                after = canonical(reachable)
                if after in came_from:
                    continue
                came_from[after] = state
                reached.append(after)
                result.violation = _broken(after)
                if result.violation:
                    result.trace = _trace(came_from, after, bounds.records)
                    result.states = len(came_from)
                    return result
        frontier = reached
        result.depth += bool(frontier)
        result.states = len(came_from)
        if progress is not None:
            progress(result.depth, result.states, len(frontier))
        if max_states is not None and result.states >= max_states:
            return result
    result.exhausted = True
    return result


def _broken(state: State) -> str:
    if lost_committed(state):
        return "the leader lacks a committed record"
    return "all replicas reported and nobody leads" if is_stuck(state) else ""


def _trace(came_from: dict[State, State | None], last: State, records: int) -> list[tuple[str, State]]:
    """The steps from the start to what ``last`` represents, with numbers of replicas that stay."""
    way = [last]
    while (before := came_from[way[-1]]) is not None:
        way.append(before)
    state = way.pop()
    steps: list[tuple[str, State]] = []
    while way:
        wanted = way.pop()
        name, state = next(step for step in successors(state, records) if canonical(step[1]) == wanted)
        steps.append((name, state))
    return steps
