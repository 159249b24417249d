"""Turns plain bytes into choices, so that one input is the same for hypothesis, for Atheris and as a file.

Invariant: the same bytes always give the same choices; after the last byte zeros are read, the simplest choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class Draws:
    """Choices read from ``data``, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        """Whether every byte has been read."""
        return self._at >= len(self._data)

    def taken(self, count: int) -> bytes:
        """The next ``count`` bytes, fewer at the end."""
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def rest(self) -> bytes:
        """All remaining bytes."""
        return self.taken(len(self._data))

    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        span = high - low + 1
        width = ((span - 1).bit_length() + 7) // 8
        return low + int.from_bytes(self.taken(width), "big") % span

    def choice(self, options: Sequence[_T]) -> _T:
        """One of ``options``; the first when the bytes have run out."""
        return options[self.integer(0, len(options) - 1)]

    def one_in(self, chances: int) -> bool:
        """True in one of this many cases; False when the bytes have run out."""
        return self.integer(0, chances - 1) == chances - 1
