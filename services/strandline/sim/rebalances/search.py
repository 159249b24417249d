"""Breadth-first search of rebalances: every world within the bounds, nearest first, so a violation is a shortest one.

A world is kept as one small integer made of the numbers of its rows and of its clients, and worlds that differ only in
which partition is which are one (`symmetry`).

Invariant: each world is kept with the one it was first reached from; a trace is read back from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from strandline.sim.rebalances.steps import Bounds, check, successors
from strandline.sim.rebalances.symmetry import exchanged_client, exchanged_rows, exchanges
from strandline.sim.rebalances.world import World, start

Progress = Callable[[int, int, int], None]
"""Called after each level with (depth, worlds so far, worlds of this level)."""

_BITS = 24
_MASK = (1 << _BITS) - 1


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


def search(bounds: Bounds, *, max_states: int | None = None, progress: Progress | None = None) -> Result:
    """Search until I28 is broken, nothing is left, or ``max_states`` worlds were seen."""
    result, space = Result(bounds), _Space(bounds)
    first = space.key(start())
    came_from = {first: first}
    frontier = [first]
    while frontier:
        reached: list[int] = []
        for state in frontier:
            try:
                for _, after in successors(space.world(state), bounds):
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


class _Numbers:
    """Numbers of values that were met, and for each the numbers of its exchanged forms."""

    def __init__(self, forms: list[Callable[[Any], Any]]) -> None:
        self._forms = forms
        self._of: dict[Any, int] = {}
        self.values: list[Any] = []
        self._exchanged: list[tuple[int, ...] | None] = []

    def number(self, value: Any) -> int:
        """The number of a value."""
        number = self._of.get(value)
        if number is None:
            number = self._of[value] = len(self.values)
            self.values.append(value)
            self._exchanged.append(None)
        return number

    def exchanged(self, value: Any) -> tuple[int, ...]:
        """The numbers of all its forms."""
        number = self.number(value)
        forms = self._exchanged[number]
        if forms is None:
            forms = self._exchanged[number] = tuple(self.number(form(value)) for form in self._forms)
        return forms


class _Space:
    """Worlds as integers."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        ways = exchanges(bounds.partitions)
        self._rows = _Numbers([partial(exchanged_rows, how=how) for how in ways])
        self._clients = _Numbers([partial(exchanged_client, how=how) for how in ways])

    def key(self, world: World) -> int:
        """One integer for a world and for all worlds that differ in which partition is which."""
        first, second = world.clients
        forms = zip(
            self._rows.exchanged(world.rows),
            self._clients.exchanged(first),
            self._clients.exchanged(second),
            strict=True,
        )
        rows, one, other = min(forms)
        return ((world.restarts << _BITS | rows) << _BITS | one) << _BITS | other

    def world(self, key: int) -> World:
        """The world of an integer."""
        clients = self._clients.values
        one, other = clients[key >> _BITS & _MASK], clients[key & _MASK]
        return World(self._rows.values[key >> 2 * _BITS & _MASK], (one, other), key >> 3 * _BITS)

    def way(self, came_from: dict[int, int], state: int) -> list[str]:
        """The steps to ``state``, each named as it is taken from the world kept for the state before."""
        names: list[str] = []
        while came_from[state] != state:
            before = came_from[state]
            names.append(next(n for n, w in successors(self.world(before), self._bounds) if self.key(w) == state))
            state = before
        return names[::-1]
