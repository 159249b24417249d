"""The search of transactions: a world is one integer made of the numbers of its parts.

Worlds that differ only in which partition is which are one (`symmetry`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

from strandline_sim.searches import breadth_first
from strandline_sim.searches.breadth_first import Progress
from strandline_sim.searches.transactions.rules import check, check_end, check_step
from strandline_sim.searches.transactions.steps import successors
from strandline_sim.searches.transactions.world import Bounds, World, exchanged, start

Result = breadth_first.Result[Bounds, str]
"""What a search found; a step is its name."""

_BITS = 20


def search(
    bounds: Bounds, *, begin: World | None = None, max_states: int | None = None, progress: Progress | None = None
) -> Result:
    """Search until a rule is broken, nothing is left, or ``max_states`` worlds were reached.

    ``begin``: the world to begin with; None: nothing was sent.
    """
    space = _Space(bounds)
    return breadth_first.search(bounds, space, space.key(begin or start()), max_states=max_states, progress=progress)


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

    def after(self, key: int) -> Iterator[int]:
        """The worlds that can follow."""
        world = self.world(key)
        found = [after for _, after in successors(world, self._bounds)]
        for after in found:
            check_step(world, after)
        if not found:
            check_end(world, self._bounds)
        return map(self.key, found)

    def check(self, key: int) -> None:
        """I36 to I38 in one world."""
        check(self.world(key))

    def steps(self, states: Sequence[int]) -> list[str]:
        """The names of the steps, each as it is taken from the world that is kept for the state before."""
        return [self._step(before, after) for before, after in pairwise(states)]

    def _step(self, before: int, after: int) -> str:
        return next(name for name, world in successors(self.world(before), self._bounds) if self.key(world) == after)
