"""How many records a reader is behind: the high watermark minus where it stands.

Invariant: where one of the two is not known there is no lag; it is never 0 for that.
"""

from __future__ import annotations


def records_behind(position: int | None, end: int | None) -> int | None:
    """Records from ``position``, an offset that is read or committed, to ``end``, the high watermark; None without one
    of them. 0 for a position above the end: a high watermark is known later than what was read below it."""
    return None if position is None or end is None else max(0, end - position)
