"""The segments of a log: finds the one that holds an offset, and tracks which ones no sync covers yet (M55).

Invariants: the segments are in order and without gaps, each begins where the one before it ends; the last one is
active, and there is always one. Everything written, created or removed is covered by the next sync that is issued.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from strandline.core.types import BatchHeader, Offset
from strandline.storage.disk import StorageFailed, sync_directory
from strandline.storage.open_files import FileOf, OpenFiles
from strandline.storage.scan import Part, StoredBatch
from strandline.storage.segment import Segment


class FoundBatch(NamedTuple):
    """A batch, and the segment file that holds it."""

    batch: StoredBatch
    path: Path

    @property
    def header(self) -> BatchHeader:
        """The batch's header."""
        return self.batch.header


@dataclass(slots=True)
class FlushToken:
    """One issued commit, and the files that must be synced for it (M55). `sync` runs once, in a worker thread.

    A file that is closed meanwhile was synced before, and a file or directory that is gone needs no sync. So the loop
    thread may truncate, roll, delete and set aside logs without harm to the worker.
    """

    leo_at_issue: Offset
    """The end of what the commit covers, unless the log is cut below it meanwhile, which the core considers."""
    _files: list[FileOf]
    _directory: Path | None
    done: bool = field(default=False, init=False)

    @property
    def has_work(self) -> bool:
        """Whether anything needs a sync; if not, `sync` costs nothing and no thread is needed."""
        return bool(self._files) or self._directory is not None

    def sync(self) -> None:
        """Make durable everything that was written before the issue.

        Raises:
            StorageFailed: a sync failed; it must not be retried.
        """
        for file in self._files:
            file.sync_now()
        if self._directory is not None:
            _sync_entries(self._directory)
        self.done = True


def _sync_entries(directory: Path) -> None:
    try:
        sync_directory(directory)
    except StorageFailed as failed:
        if not isinstance(failed.__cause__, FileNotFoundError):
            raise


class _Issued(NamedTuple):
    """A commit under way: its segments with their numbers of writes, and the number of changed directory entries."""

    token: FlushToken
    covers: dict[Segment, int]
    entries: int


class UnsyncedFiles:
    """The segments and directory entries of one log that no finished sync covers."""

    __slots__ = ("_directory", "_entries", "_entries_synced", "_issued", "_segments")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: set[Segment] = set()
        # Counts created and removed entries; synced <= counted.
        self._entries = 0
        self._entries_synced = 0
        self._issued: list[_Issued] = []

    def wrote(self, segment: Segment) -> None:
        """Note a segment with bytes that are not durable."""
        self._segments.add(segment)

    def removed(self, segment: Segment) -> None:
        """Note a removed segment: its bytes need no sync, but the removal of its entry does."""
        self._segments.discard(segment)
        self._entries += 1

    def created(self, segment: Segment) -> None:
        """Note a new segment, whose entry needs a sync."""
        self._segments.add(segment)
        # Without its entry the file would be lost with the power, however often its bytes were synced.
        self._entries += 1

    def issue(self, leo: Offset) -> FlushToken:
        """Issue a token that covers everything that no finished token covers."""
        self._settle()
        files = [segment.file for segment in self._segments]
        directory = self._directory if self._entries > self._entries_synced else None
        covers = {segment: segment.writes for segment in self._segments}
        token = FlushToken(leo, files, directory)
        self._issued.append(_Issued(token, covers, self._entries))
        return token

    def sync_now(self) -> None:
        """Make everything durable, in this thread. Raises `StorageFailed`."""
        self.issue(Offset(0)).sync()
        self._settle()

    def _settle(self) -> None:
        for issued in [issued for issued in self._issued if issued.token.done]:
            self._issued.remove(issued)
            self._entries_synced = max(self._entries_synced, issued.entries)
            for segment, writes in issued.covers.items():
                # If it was appended to or cut since the issue, that needs a sync of its own (M55).
                if segment.writes == writes:
                    segment.file.synced()
                    self._segments.discard(segment)


class SegmentChain:
    """The segments of one log; creations and removals are noted for the next sync."""

    __slots__ = ("_directory", "_files", "_index_interval_bytes", "_segments", "unsynced")

    def __init__(self, directory: Path, segments: list[Segment], index_interval_bytes: int, files: OpenFiles) -> None:
        self._directory = directory
        self._segments = segments
        self._index_interval_bytes = index_interval_bytes
        self._files = files
        self.unsynced = UnsyncedFiles(directory)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self._segments[-1]

    @property
    def first_offset(self) -> Offset:
        """The base offset of the oldest segment."""
        return self._segments[0].base_offset

    @property
    def end_offset(self) -> Offset:
        """The end offset of the active segment."""
        return self._segments[-1].next_offset

    def add(self, base_offset: Offset) -> None:
        """Begin a new active segment. Raises `StorageFailed`."""
        segment = Segment.create(self._directory, base_offset, self._index_interval_bytes, self._files)
        self._segments.append(segment)
        self.unsynced.created(segment)

    def drop_above(self, segment: Segment) -> None:
        """Remove the segments behind ``segment``, last first, so that a crash leaves no gap. Raises `StorageFailed`."""
        while self._segments[-1] is not segment:
            self._remove(self._segments.pop())

    def drop_below(self, offset: Offset) -> None:
        """Remove the segments that lie wholly below ``offset``, oldest first; never the active one.

        Raises:
            StorageFailed: the disk failed.
        """
        while self.drops_below(offset):
            self._remove(self._segments.pop(0))

    def drops_below(self, offset: Offset) -> bool:
        """Whether a segment other than the active one lies wholly below ``offset``."""
        return len(self._segments) > 1 and self._segments[0].next_offset <= offset

    def restart(self, offset: Offset) -> None:
        """Remove every segment and start again, empty, at ``offset``. Raises `StorageFailed`."""
        # Last first, as in `drop_above`: a crash leaves no gap.
        while self._segments:
            self._remove(self._segments.pop())
        self.add(offset)

    def _remove(self, segment: Segment) -> None:
        segment.remove()
        self.unsynced.removed(segment)

    def holding(self, offset: Offset) -> Segment:
        """The segment whose range holds ``offset``; the first one if it is below all, the active one if above."""
        if offset >= self._segments[-1].base_offset:
            return self._segments[-1]
        at = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset)
        return self._segments[max(at - 1, 0)]

    def batches(self, start: Offset) -> Iterator[FoundBatch]:
        """The headers of all batches from the one that holds ``start`` on.

        Raises:
            StorageDamaged: a header is damaged.
        """
        if start >= self.end_offset:
            return
        first = self._segments.index(self.holding(start))
        position = self._segments[first].locate(max(start, self.first_offset))
        for segment in self._segments[first:]:
            for batch in segment.batches(position):
                yield FoundBatch(batch, segment.path)
            position = 0

    def bytes_between(self, start: Offset, end: Offset) -> int:
        """Bytes from the batch that holds ``start`` up to, not including, the one that holds ``end``."""
        low = min(max(start, self.first_offset), self.end_offset)
        high = min(max(end, low), self.end_offset)
        if low == high:
            return 0
        first, last = self.holding(low), self.holding(high)
        if first is last:
            return last.locate(high) - first.locate(low)
        at, to = self._segments.index(first), self._segments.index(last)
        between = sum(segment.size_bytes for segment in self._segments[at + 1 : to])
        return first.size_bytes - first.locate(low) + between + last.locate(high)

    def parts_reaching(self, timestamp_ms: int, start: Offset) -> list[Part]:
        """The places that may hold the first batch behind ``start`` that is at or after ``timestamp_ms``.

        Two segments are enough: in the first one, the batch that reaches the time may lie below ``start``.
        """
        reaching = (s for s in self._segments if s.max_timestamp_ms >= timestamp_ms and s.next_offset > start)
        return [segment.part_reaching(timestamp_ms) for segment in islice(reaching, 2)]


# ---- retention
# Decides which old segments may be deleted by the limits of size and time.
#
# Invariant: nothing at or above the high watermark, never the active segment, oldest first without gaps. A segment
# whose newest timestamp is further in the future than its topic allows is as old as its file, so no record keeps a log
# for ever.


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

    By size: as long as the rest still holds ``retention_bytes``. By time: if the newest record is more than
    ``retention_ms`` older than ``now_ms`` (wall clock, like the records' timestamps; a segment without timestamps does
    not expire). ``ahead_ms``: how far in the future the topic accepts timestamps.
    """
    excess = 0 if retention_bytes is None else sum(segment.size_bytes for segment in segments) - retention_bytes
    target: Offset | None = None
    for segment in segments[:-1]:
        is_excess = retention_bytes is not None and excess >= segment.size_bytes
        is_old = retention_ms is not None and 0 <= _time_ms(segment, now_ms + ahead_ms) < now_ms - retention_ms
        # Not above the HW: the next leader may lack those records, and its log would end below this one's start (M10).
        if segment.next_offset > high_watermark or not (is_excess or is_old):
            break
        excess -= segment.size_bytes
        target = segment.next_offset
    return target


def waits_until_ms(segments: Sequence[Segment], *, now_ms: int, ahead_ms: int) -> int | None:
    """The future time from which the oldest segment's age counts; None if it already counts."""
    if len(segments) < 2:
        return None
    time_ms = _time_ms(segments[0], now_ms + ahead_ms)
    return time_ms if time_ms > now_ms else None


def _time_ms(segment: Segment, latest_ms: int) -> int:
    newest_ms = segment.max_timestamp_ms
    return newest_ms if newest_ms <= latest_ms else segment.modified_ms()
