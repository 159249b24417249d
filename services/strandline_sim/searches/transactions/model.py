"""The search of transactions: a world is one integer made of the numbers of its parts.

Worlds that differ only in which partition is which are one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from strandline_sim.searches import breadth_first
from strandline_sim.searches.breadth_first import Interned
from strandline_sim.searches.transactions.rules import check, check_end, check_step
from strandline_sim.searches.transactions.steps import successors
from strandline_sim.searches.transactions.world import TransactionBounds, TransactionWorld, exchanged, start

Result = breadth_first.Result[TransactionWorld, str]
"""What a search found; a step is its name."""

_BITS = 20


def search(bounds: TransactionBounds, *, begin: TransactionWorld | None = None, **limits: Any) -> Result:
    """Search until a rule is broken, or nothing is left (`breadth_first.search`).

    ``begin``: the world to begin with; None: nothing was sent.
    """
    return breadth_first.search(_Transactions(bounds, begin or start()), **limits)


class _Transactions(breadth_first.Model[TransactionWorld, str, int]):
    """Worlds as integers."""

    def __init__(self, bounds: TransactionBounds, begin: TransactionWorld) -> None:
        self.bounds: TransactionBounds = bounds
        self._begin = begin
        self._fields: list[Interned[Hashable]] = [Interned() for _ in TransactionWorld._fields]

    def start(self) -> TransactionWorld:
        return self._begin

    def successors(self, world: TransactionWorld) -> Iterator[tuple[str, TransactionWorld]]:
        return iter(successors(world, self.bounds))

    def key(self, world: TransactionWorld) -> int:
        """One integer for a world and the one with exchanged partitions."""
        return min(self._number(world), self._number(exchanged(world)))

    def _number(self, world: TransactionWorld) -> int:
        key = 0
        for numbers, value in zip(self._fields, world, strict=True):
            number = numbers.id_of(value)
            assert number < 1 << _BITS, "too many values for the bits of a key"
            key = key << _BITS | number
        return key

    def world(self, key: int) -> TransactionWorld:
        found: list[Hashable] = []
        for numbers in reversed(self._fields):
            found.append(numbers.values[key & ((1 << _BITS) - 1)])
            key >>= _BITS
        return TransactionWorld(*reversed(found))  # type: ignore[arg-type]

    def after(self, key: int) -> Iterator[int]:
        """The worlds that can follow; each step is checked, and a world without any."""
        world = self.world(key)
        found = [after for _, after in self.successors(world)]
        for after in found:
            check_step(world, after)
        if not found:
            check_end(world, self.bounds)
        return map(self.key, found)

    def check(self, world: TransactionWorld) -> None:
        """I36 to I38 in one world."""
        check(world)
