"""How many records a reader is behind: the high watermark minus where it is, or minus the log start above that.

Invariant: where position or end is not known there is no lag; it is never 0 for that. Deleted records do not count: a
reader below the log start can read nothing of them.
"""

from __future__ import annotations


def records_behind(position: int | None, end: int | None, log_start: int | None = None) -> int | None:
    """Records that are left from ``position``, an offset that is read or committed, to ``end``, the high watermark.

    None without one of the two; ``log_start`` None: not known, and counted as if nothing was deleted. 0 for a position
    above the end: a high watermark is known later than what was read below it.
    """
    return None if position is None or end is None else max(0, end - max(position, log_start or 0))
