"""Breadth-first search: every state within the bounds, nearest first, so that a violation found is a shortest one.

Invariant: each state is kept with the one it was first reached from; a trace is read back from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.sim.reigns.steps import Bounds, successors
from strandline.sim.reigns.world import Broken, World, start

Progress = Callable[[int, int, int], None]
"""Called after each level with (depth, states so far, states of this level)."""


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
    trace: list[str] = field(default_factory=list)
    """The steps to the state in which it happens next."""


def search(bounds: Bounds, *, max_states: int | None = None, progress: Progress | None = None) -> Result:
    """Search until an invariant is broken, nothing is left, or ``max_states`` were seen."""
    result = Result(bounds)
    first = start()
    came_from: dict[World, tuple[World | None, str]] = {first: (None, "")}
    frontier = [first]
    while frontier:
        reached: list[World] = []
        for state in frontier:
            try:
                for name, after in successors(state, bounds):
                    result.transitions += 1
                    if after not in came_from:
                        came_from[after] = (state, name)
                        reached.append(after)
            except (Broken, AssertionError) as broken:
                result.violation = str(broken)
                result.trace = _way(came_from, state)
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


def _way(came_from: dict[World, tuple[World | None, str]], last: World) -> list[str]:
    names = []
    state: World | None = last
    while state is not None:
        state, name = came_from[state]
        names.append(name)
    return names[-2::-1]
