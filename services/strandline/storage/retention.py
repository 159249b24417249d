"""Decides which old segments retention by size and by time allows to go.

Invariant: never anything at or above the high watermark, never the active segment, oldest first without gaps. A segment
whose newest time lies further ahead than its topic takes is as old as its file: no record keeps a log for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.core.types import Offset
from strandline.storage.segment import Segment


def expired_upto(
    segments: Sequence[Segment],
    *,
    high_watermark: Offset,
    now_ms: int,
    retention_bytes: int | None,
    retention_ms: int | None,
    ahead_ms: int,
) -> Offset | None:
    """The offset below which whole segments have expired, or ``None``.

    By size: as long as the rest still holds ``retention_bytes``. By time: if the newest record is older than
    ``retention_ms`` before ``now_ms`` (wall clock, as the records' timestamps; a segment without timestamps
    does not expire). ``ahead_ms``: how far ahead of now the topic takes a record's time.
    """
    excess = 0 if retention_bytes is None else sum(segment.size_bytes for segment in segments) - retention_bytes
    target: Offset | None = None
    for segment in segments[:-1]:
        is_excess = retention_bytes is not None and excess >= segment.size_bytes
        is_old = retention_ms is not None and 0 <= _time_ms(segment, now_ms + ahead_ms) < now_ms - retention_ms
        if segment.next_offset > high_watermark or not (is_excess or is_old):
            break
        excess -= segment.size_bytes
        target = segment.next_offset
    return target


def waits_until_ms(segments: Sequence[Segment], *, now_ms: int, ahead_ms: int) -> int | None:
    """The time, still to come, from which the oldest segment's age counts; None if its age counts already."""
    if len(segments) < 2:
        return None
    time_ms = _time_ms(segments[0], now_ms + ahead_ms)
    return time_ms if time_ms > now_ms else None


def _time_ms(segment: Segment, latest_ms: int) -> int:
    newest_ms = segment.max_timestamp_ms
    return newest_ms if newest_ms <= latest_ms else segment.modified_ms()
