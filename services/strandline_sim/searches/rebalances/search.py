"""The search of rebalances: a world is one small integer made of the numbers of its rows and of its clients.

Worlds that differ only in which partition is which are one (`symmetry`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from strandline_sim.searches import breadth_first
from strandline_sim.searches.breadth_first import Progress
from strandline_sim.searches.rebalances.steps import Bounds, check, successors
from strandline_sim.searches.rebalances.world import World, exchanged_client, exchanged_rows, exchanges, start

Result = breadth_first.Result[Bounds, str]
"""What a search found; a step is its name."""

_BITS = 24
_MASK = (1 << _BITS) - 1


def search(bounds: Bounds, *, max_states: int | None = None, progress: Progress | None = None) -> Result:
    """Search until I28 is broken, nothing is left, or ``max_states`` worlds were reached."""
    space = _Space(bounds)
    return breadth_first.search(bounds, space, space.key(start()), max_states=max_states, progress=progress)


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

    def after(self, key: int) -> Iterator[int]:
        """The worlds that can follow."""
        return (self.key(after) for _, after in successors(self.world(key), self._bounds))

    def check(self, key: int) -> None:
        """I28 in one world."""
        check(self.world(key))

    def steps(self, states: Sequence[int]) -> list[str]:
        """The names of the steps, each as it is taken from the world that is kept for the state before."""
        return [self._step(before, after) for before, after in pairwise(states)]

    def _step(self, before: int, after: int) -> str:
        return next(name for name, world in successors(self.world(before), self._bounds) if self.key(world) == after)
