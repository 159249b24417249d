"""Breadth-first search: every state of a small world, nearest first, so that a violation found is a shortest one.

Invariant: each state is kept with the one it was first reached from; a trace is read back from there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

_State = TypeVar("_State", bound=Hashable)
_Step = TypeVar("_Step")
_StepOut = TypeVar("_StepOut", covariant=True)
_Bounds = TypeVar("_Bounds")

Progress = Callable[[int, int, int], None]
"""Called after each level with (depth, states so far, states of this level)."""


class Space(Protocol[_State, _StepOut]):
    """The states that can be reached. One state may represent several that differ only in names."""

    def after(self, state: _State) -> Iterable[_State]:
        """The states that can follow, some of them more than once.

        Raises:
            AssertionError: a step breaks a rule.
        """

    def check(self, state: _State) -> None:
        """Called when a state is reached for the first time.

        Raises:
            AssertionError: the state breaks a rule.
        """

    def steps(self, states: Sequence[_State]) -> Sequence[_StepOut]:
        """The steps that lead through ``states``, of which the first is the one that the search began with."""


@dataclass(slots=True)
class Result(Generic[_Bounds, _Step]):
    """What a search found."""

    bounds: _Bounds
    states: int = 0
    depth: int = 0
    exhausted: bool = False
    """Every state within the bounds was reached."""
    violation: str = ""
    trace: Sequence[_Step] = field(default_factory=list)
    """The steps to the state that breaks a rule, or in which the next step does."""


def search(
    bounds: _Bounds,
    space: Space[_State, _Step],
    first: _State,
    *,
    max_states: int | None = None,
    progress: Progress | None = None,
) -> Result[_Bounds, _Step]:
    """Search until a rule is broken, nothing is left, or at least ``max_states`` were reached."""
    result: Result[_Bounds, _Step] = Result(bounds)
    came_from = {first: first}
    frontier = [first]
    while frontier:
        reached: list[_State] = []
        for before in frontier:
            at = before
            try:
                for after in space.after(before):
                    if after not in came_from:
                        came_from[after] = before
                        reached.append(after)
                        at = after
                        space.check(after)
                        at = before
            except AssertionError as broken:
                result.violation, result.states = str(broken), len(came_from)
                result.trace = space.steps(_way(came_from, at))
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


def _way(came_from: dict[_State, _State], last: _State) -> list[_State]:
    way = [last]
    while came_from[way[-1]] != way[-1]:
        way.append(came_from[way[-1]])
    return way[::-1]
