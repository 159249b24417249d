"""How many bytes lie behind an offset, so that a fetch can be answered or parked without looking at the disk.

Invariant: a position is never below the true count of bytes, so a fetch is never parked on data it could
have had. Only recent appends are remembered; an older offset counts as "enough" (Kafka, too, answers a
fetch at once when its offset lies on an older segment, M23 F).
"""

from __future__ import annotations

from bisect import bisect_left

from strandline.core.types import Offset

REMEMBERED_APPENDS = 4096
PLENTY_BYTES = 1 << 62


class SizeLedger:
    """Cumulative bytes at recent batch ends of one log."""

    __slots__ = ("_ends", "_totals")

    def __init__(self, leo: Offset) -> None:
        self._ends: list[int] = [leo]
        self._totals: list[int] = [0]

    def appended(self, leo: Offset, size_bytes: int) -> None:
        """A batch of ``size_bytes`` moved the log end to ``leo``."""
        self._ends.append(leo)
        self._totals.append(self._totals[-1] + size_bytes)
        if len(self._ends) > 2 * REMEMBERED_APPENDS:
            del self._ends[:REMEMBERED_APPENDS], self._totals[:REMEMBERED_APPENDS]

    def truncated(self, leo: Offset) -> None:
        """The log was cut to ``leo``."""
        kept = bisect_left(self._ends, leo + 1)
        del self._ends[kept:], self._totals[kept:]
        if not self._ends or self._ends[-1] != leo:
            self._ends, self._totals = [leo], [0]

    def bytes_before(self, offset: Offset) -> int | None:
        """Bytes of the batches that end at or before ``offset``, counted from an arbitrary but fixed start; None if
        ``offset`` is older than what is remembered. Only the difference of two values means anything."""
        if offset < self._ends[0]:
            return None
        return self._totals[bisect_left(self._ends, offset + 1) - 1]

    def bytes_between(self, start: Offset, end: Offset) -> int:
        """Bytes of the batches in [start, end); PLENTY_BYTES if ``start`` is older than what is remembered."""
        if start >= end:
            return 0
        if start < self._ends[0]:
            return PLENTY_BYTES
        first = bisect_left(self._ends, start + 1) - 1
        last = bisect_left(self._ends, end + 1) - 1
        return self._totals[last] - self._totals[first]
