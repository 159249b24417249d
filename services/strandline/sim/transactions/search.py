"""Breadth-first search of transactions: every world within the bounds, nearest first, so a violation is a shortest one.

A world is kept as one integer made of the numbers of its parts, and worlds that differ only in which partition is which
are one (`symmetry`).

Invariant: each world is kept with the one it was first reached from; a trace is read back from there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from strandline.sim.transactions.rules import check, check_end, check_step
from strandline.sim.transactions.steps import successors
from strandline.sim.transactions.symmetry import exchanged
from strandline.sim.transactions.world import Bounds, World, start

Progress = Callable[[int, int, int], None]
"""Called after each level with (depth, worlds so far, worlds of this level)."""

_BITS = 20


@dataclass(slots=True)
class Result:
    """What a search found."""

    bounds: Bounds
    states: int = 0
    transitions: int = 0
    depth: int = 0
    exhausted: bool = False
    """Every world within the bounds was seen."""
    violation: str = ""
    trace: list[str] = field(default_factory=list)
    """The steps to the world that breaks it, or in which the next step does."""


def search(
    bounds: Bounds, *, begin: World | None = None, max_states: int | None = None, progress: Progress | None = None
) -> Result:
    """Search until a rule is broken, nothing is left, or ``max_states`` worlds were seen.

    ``begin``: the world to begin with; None: nothing was sent.
    """
    result, space = Result(bounds), _Space(bounds)
    first = space.key(begin or start())
    came_from = {first: first}
    frontier = [first]
    while frontier:
        reached: list[int] = []
        for state in frontier:
            try:
                for after in _onward(space.world(state), bounds):
                    result.transitions += 1
                    key = space.key(after)
                    if key not in came_from:
                        came_from[key] = state
                        reached.append(key)
                        check(after)
            except AssertionError as broken:
                result.violation, result.states = str(broken), len(came_from)
                result.trace = space.way(came_from, state)
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


def _onward(world: World, bounds: Bounds) -> list[World]:
    found = [after for _, after in successors(world, bounds)]
    for after in found:
        check_step(world, after)
    if not found:
        check_end(world, bounds)
    return found


class _Numbers:
    """Numbers of values that were met."""

    def __init__(self) -> None:
        self._of: dict[Hashable, int] = {}
        self.values: list[Hashable] = []

    def number(self, value: Hashable) -> int:
        """The number of a value."""
        number = self._of.setdefault(value, len(self.values))
        if number == len(self.values):
            assert number < 1 << _BITS, "too many values for the bits of a key"
            self.values.append(value)
        return number


class _Space:
    """Worlds as integers."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._fields = [_Numbers() for _ in World._fields]

    def key(self, world: World) -> int:
        """One integer for a world and the one with exchanged partitions."""
        return min(self._number(world), self._number(exchanged(world)))

    def _number(self, world: World) -> int:
        key = 0
        for numbers, value in zip(self._fields, world, strict=True):
            key = key << _BITS | numbers.number(value)
        return key

    def world(self, key: int) -> World:
        """The world of an integer."""
        found: list[Hashable] = []
        for numbers in reversed(self._fields):
            found.append(numbers.values[key & ((1 << _BITS) - 1)])
            key >>= _BITS
        return World(*reversed(found))  # type: ignore[arg-type]

    def way(self, came_from: dict[int, int], state: int) -> list[str]:
        """The steps to ``state``, each named as it is taken from the world kept for the state before."""
        names: list[str] = []
        while came_from[state] != state:
            before = came_from[state]
            names.append(next(n for n, w in successors(self.world(before), self._bounds) if self.key(w) == state))
            state = before
        return names[::-1]
