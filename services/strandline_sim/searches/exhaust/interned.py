"""Small numbers for equal values, so that states are tuples of numbers.

Invariant: ``values[id_of(value)] == value``, and equal values have equal numbers.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


class Interned(Generic[Value]):
    """Values in order of first appearance."""

    __slots__ = ("_ids", "values")

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._ids: dict[Value, int] = {}

    def id_of(self, value: Value) -> int:
        """The number of ``value``; a new one, if it was never seen."""
        known = self._ids.get(value)
        if known is None:
            known = self._ids[value] = len(self.values)
            self.values.append(value)
        return known

    def __len__(self) -> int:
        return len(self.values)
