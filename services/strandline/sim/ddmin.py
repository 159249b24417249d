"""How a list is made as short as possible while something stays true of it (Zeller's delta debugging).

Invariant: what is returned was tried and found true; the order of what is kept is the order it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """A part of ``items`` of which ``holds`` is true, and of which no single item can be left out.

    ``holds`` must be true of ``items``; it says no, without being asked, when its time is over.
    """
    kept, size = list(items), max(1, len(items) // 2)
    while kept:
        shorter = _without_a_piece(kept, size, holds)
        if shorter is not None:
            kept, size = shorter, max(1, min(size, len(shorter) // 2))
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return kept


def _without_a_piece(items: list[T], size: int, holds: Callable[[list[T]], bool]) -> list[T] | None:
    """``items`` without every piece of ``size`` that is not needed, from behind; None if each one is."""
    kept, removed = items, False
    end = len(kept)
    while end > 0:
        start = max(0, end - size)
        candidate = kept[:start] + kept[end:]
        if holds(candidate):
            kept, removed = candidate, True
        end = start
    return kept if removed else None
