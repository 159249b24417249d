"""Draws every choice of a run: a value is a hash of (seed, stream, key, n), and depends on nothing else.

Invariant: a draw of one link, disk or client never moves the draws of another, so taking one fault or one message
out of a run leaves all other choices as they were; that is what makes a failing run small.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


class Purpose(IntEnum):
    """The purpose of a draw; draws for different purposes are independent of each other."""

    SHAPE = 1
    PLAN = 2
    NET = 3
    DISK = 4
    CLIENT = 5
    STORE = 6
    FAULT = 7
    SAVES = 8


def mix(value: int) -> int:
    """Spread a number over 64 bits: the finisher of splitmix64."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix2(one: int, two: int) -> int:
    """Spread a pair of numbers over 64 bits; the order of the pair matters."""
    return mix(mix(one + _STEP) + two + _STEP)


class Draw:
    """The choices of one (seed, purpose, key), one after the other."""

    __slots__ = ("_at",)

    def __init__(self, seed: int, purpose: Purpose, key: int = 0) -> None:
        self._at = mix2(mix2(seed, int(purpose)), key)

    def next(self) -> int:
        """A number of 64 bits."""
        self._at = value = (self._at + _STEP) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        return value ^ (value >> 31)

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        return self.next() % bound

    def between(self, low: int, high: int) -> int:
        """A number in [low, high], both included."""
        return low + self.next() % (high - low + 1)

    def chance(self, per_mille: int) -> bool:
        """True ``per_mille`` times in a thousand."""
        return self.next() % 1000 < per_mille

    def choose(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.next() % len(items)]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """``count`` different items, in the order in which they were drawn."""
        rest = list(items)
        return [rest.pop(self.next() % len(rest)) for _ in range(min(count, len(rest)))]
