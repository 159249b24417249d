"""One partition's log: append, read, truncate, roll and retention.

Invariant: ``log_start_offset`` <= every readable offset < ``leo``, and what a call promises as durable is durable when
it returns. Storage only stores; the core decides where to truncate and what is valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from strandline.core.errors import ErrorCode, Refused
from strandline.core.log.producers import ProducerLedger
from strandline.core.types import (
    CONTROL_BIT,
    NO_TRANSACTIONS,
    BatchHeader,
    EpochEntry,
    LeaderEpoch,
    Offset,
    ProducerBatch,
    TransactionState,
)
from strandline.records.batch import STAMP_BYTES, Batch, check_replicated, stamp_prefix
from strandline.records.codec import with_marker
from strandline.storage.chain import FlushToken, FoundBatch, SegmentChain, expired_upto, waits_until_ms
from strandline.storage.checkpoint_files import CheckpointDamaged, LogName
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.disk import StorageDamaged, sync_directory
from strandline.storage.layout import log_name, make_directory
from strandline.storage.open_files import OpenFiles
from strandline.storage.producer_snapshot import (
    begin_with_snapshot,
    drop_snapshots_above,
    drop_snapshots_except,
    newest_snapshot,
    save_snapshot,
)
from strandline.storage.recovery import Recovery, SegmentLoader, believed_epochs
from strandline.storage.scan import ALL_OFFSETS, TimeSearch
from strandline.storage.segment import MAX_SEGMENT_BYTES, Chunk, Segment

__all__ = ["Log", "LogSettings", "log_name"]

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The layout and retention of a log (Kafka's topic settings of the same names)."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    """Roll when batch timestamps are this much later than the segment's first batch."""
    index_interval_bytes: int = 4096
    retention_bytes: int | None = None
    retention_ms: int | None = 7 * DAY_MS
    timestamp_after_max_ms: int = 3_600_000
    """How far in the future a record's timestamp may be to count for retention."""
    durable: bool = True
    """``durability=fsync``: truncations and checkpoints are durable before the call returns."""

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError(f"segment_bytes {self.segment_bytes} must be 1 to {MAX_SEGMENT_BYTES}")


class Log:
    """One partition's log. All methods are for the loop thread; only `FlushToken.sync` runs elsewhere."""

    def __init__(
        self,
        directory: Path,
        settings: LogSettings,
        checkpoints: Checkpoints,
        segments: SegmentChain,
        log_start_offset: Offset,
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.name = log_name(directory)
        self.checkpoints = checkpoints
        self._segments = segments
        self._log_start_offset = log_start_offset

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        settings: LogSettings | None = None,
        checkpoints: Checkpoints | None = None,
        clean: bool = False,
        check_all: bool = False,
        syncs_entry: bool = True,
        files: OpenFiles | None = None,
    ) -> tuple[Log, Recovery]:
        """Open or create the log of one partition; return it with what was found.

        ``directory`` is named ``<topic>-<partition>``; ``checkpoints`` and ``files`` are those of its data directory
        (by default read from there, and none). ``clean`` means that the last stop was clean, so no CRC is checked;
        otherwise CRCs are checked from the recovery point on, or with ``check_all`` everywhere. Everything is durable
        on return (TR17), except the entry of a new directory if ``syncs_entry`` is False. The caller lowers checkpoints
        that are above the LEO. Raises `StorageFailed`.
        """
        settings = settings or LogSettings()
        checkpoints = checkpoints or Checkpoints.load(directory.parent)
        files = files or OpenFiles(syncs=settings.durable)
        name = log_name(directory)
        is_new = make_directory(directory, durable=syncs_entry)
        log_start = checkpoints.log_starts.get(name)
        durable_point = checkpoints.recovery_points.get(name) or Offset(0)
        trusted_below = Offset(0) if check_all else ALL_OFFSETS if clean else durable_point
        loader = SegmentLoader(directory, log_start or Offset(0), trusted_below, settings.index_interval_bytes, files)
        loader.load()
        # Before a log that ends below its start begins again there: afterwards the loss would not show (M58).
        found_leo = loader.segments[-1].next_offset if loader.segments else Offset(0)
        segments = SegmentChain(directory, loader.segments, settings.index_interval_bytes, files)
        log = cls(directory, settings, checkpoints, segments, log_start or Offset(0))
        log._settle_start(found_leo)
        if not is_new:
            # The first commit covers the files of a new log.
            loader.sync()
        epochs = believed_epochs(_saved_epochs(checkpoints, name), tuple(segments), loader.tail, log.leo)
        high_watermark = checkpoints.high_watermarks.get(name) or Offset(0)
        # A snapshot above the trusted part may describe batches that were truncated and rewritten since. One at the log
        # start describes no batch of this log: the log began there together with it (C43).
        drop_snapshots_above(directory, max(log.log_start_offset, min(log.leo, trusted_below)))
        return log, Recovery(
            was_clean=clean and not check_all,
            log_start_offset=log.log_start_offset,
            leo=log.leo,
            epochs=tuple(epochs.entries),
            bytes_checked=loader.bytes_checked,
            bytes_cut=loader.bytes_cut,
            first_bad_file=loader.bad_file,
            first_bad_position=loader.bad_position,
            fault=loader.fault,
            segments_rebuilt=loader.rebuilt,
            epochs_rebuilt=epochs.rebuilt,
            ended_below_durable_point=found_leo < durable_point,
            ended_below_high_watermark=found_leo < high_watermark,
        )

    def __repr__(self) -> str:
        topic, partition = self.name
        return f"<Log {topic}-{partition} start={self.log_start_offset} leo={self.leo} segments={len(self._segments)}>"

    @property
    def leo(self) -> Offset:
        """The offset that the next record gets (M3)."""
        return self._segments.end_offset

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that may be read (M10)."""
        return self._log_start_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def active_segment(self) -> Segment:
        """The segment that is appended to."""
        return self._segments.active

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments in order; the last is active."""
        return tuple(self._segments)

    def append(
        self, batches: Sequence[Batch | tuple[BatchHeader, memoryview]], base_offset: Offset, leader_epoch: LeaderEpoch
    ) -> bool:
        """Append producers' batches as leader: stamp offset and epoch without a copy. Return whether a segment began.

        Raises:
            StorageFailed: the disk failed.
        """
        assert base_offset == self.leo, f"append at {base_offset} to a log that ends at {self.leo}"
        headers = [header for header, _ in batches]
        rolled = self._make_room(headers)
        buffers: list[bytes | memoryview] = []
        offset: int = base_offset
        for header, view in batches:
            # The stamped bytes are outside the CRC, so the records are written as they came, without a copy.
            buffers += (stamp_prefix(header.size_bytes, offset, leader_epoch), view[STAMP_BYTES:])
            offset += header.record_count
        self._write(buffers, headers)
        return rolled

    def append_replicated(self, payload: bytes | memoryview, batches: Sequence[BatchHeader] | None = None) -> bool:
        """Append a leader's bytes unchanged. Return whether a segment began.

        ``batches`` are the headers of a payload that `records.batch.check_replicated` has accepted; without them the
        payload is checked first (CRC, dense offsets, epochs).

        Raises:
            Refused: CORRUPT_MESSAGE, nothing was appended.
            StorageFailed: the disk failed.
        """
        if batches is None:
            batches = [header for header, _ in check_replicated(payload, self.leo)]
        if not batches:
            return False
        assert batches[0].base_offset == self.leo, (
            f"append at {batches[0].base_offset} to a log that ends at {self.leo}"
        )
        rolled = self._make_room(batches)
        self._write([payload], batches)
        return rolled

    def roll(self) -> bool:
        """Begin a new segment at the LEO, unless the active one is empty. Return whether it began.

        Raises:
            StorageFailed: the disk failed.
        """
        if not self.active_segment.size_bytes:
            return False
        # Only now: the indexes of a segment that is appended to would be outdated with the next batch.
        self.active_segment.save_indexes()
        self._segments.add(self.leo)
        return True

    def _make_room(self, batches: Sequence[BatchHeader]) -> bool:
        segment = self._segments.active
        # An empty segment takes a batch of any size, because a new one could not hold it better.
        if not segment.size_bytes:
            return False
        size = records = 0
        for header in batches:
            size += header.size_bytes
            records += header.record_count
        last = batches[-1].max_timestamp_ms
        first = segment.first_timestamp_ms()
        is_old = first is not None and first >= 0 and last - first > self.settings.segment_ms
        is_full = segment.size_bytes + size > self.settings.segment_bytes
        # Batches that compress well use up the 32 bit offsets of an index before its 32 bit positions.
        is_long = segment.next_offset - segment.base_offset + records > MAX_SEGMENT_BYTES
        return self.roll() if is_full or is_old or is_long else False

    def _write(self, buffers: Sequence[bytes | memoryview], batches: Sequence[BatchHeader]) -> None:
        segment = self._segments.active
        segment.append(buffers, batches)
        self._segments.unsynced.wrote(segment)

    def issue_flush(self) -> FlushToken:
        """Issue a commit that covers everything appended, rolled, created and removed so far (M55)."""
        return self._segments.unsynced.issue(self.leo)

    def note_durable(self, offset: Offset) -> None:
        """Note in memory that everything below ``offset`` is durable, so that recovery will trust it.

        `Checkpoints.save` writes it periodically.
        """
        # The log may have been cut since the commit was issued; a point above the end looks like a loss (M55, M58).
        self.checkpoints.recovery_points.put(self.name, min(offset, self.leo))

    def close(self, *, clean: bool = True) -> None:
        """Close the files; with ``clean`` make everything durable first and save the indexes.

        Raises:
            StorageFailed: the disk failed.
        """
        if clean:
            self.active_segment.save_indexes()
            self._segments.unsynced.sync_now()
            # Behind the sync: below this point the next start checks no CRC.
            self.checkpoints.recovery_points.put(self.name, self.leo)
        for segment in self._segments:
            segment.file.close()

    def read(self, start: Offset, max_bytes: int, end: Offset, *, at_least_one: bool = True) -> Chunk:
        """Whole batches from the one that holds ``start``; none if none ends at or below ``end``.

        At most ``max_bytes``, but with ``at_least_one`` the first batch is returned whatever its size (KIP-74). Reads
        from one segment only: call it again from the end of the result. CRCs are checked.

        Raises:
            Refused: OFFSET_OUT_OF_RANGE, ``start`` is below the log start or above the LEO.
            StorageDamaged: a batch is damaged.
        """
        if not self._log_start_offset <= start <= self.leo:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {start} is outside {self._log_start_offset}..{self.leo}; seek to an offset within",
            )
        end = min(end, self.leo)
        if start >= end:
            return Chunk(b"", start)
        return self._segments.holding(start).read(start, max_bytes, end, at_least_one=at_least_one)

    def batches(self, from_offset: Offset | None = None) -> Iterator[FoundBatch]:
        """Headers of all batches from the one that holds ``from_offset`` on, with their places.

        Raises:
            StorageDamaged: a header is damaged.
        """
        return self._segments.batches(self._log_start_offset if from_offset is None else from_offset)

    def search_time(self, timestamp_ms: int, end: Offset) -> TimeSearch:
        """A search for the first record at or after ``timestamp_ms`` in the batches that end at or below ``end``.

        Any thread may run it; reading headers may take long if many batches have the same time.
        """
        start = self._log_start_offset
        return TimeSearch(timestamp_ms, start, end, self._segments.parts_reaching(timestamp_ms, start))

    def max_timestamp_before(self, end: Offset) -> int | None:
        """The largest timestamp of the batches that end at or below ``end``; None if none of them has one."""
        latest = max((s.max_timestamp_before(end) for s in self.segments if s.base_offset < end), default=-1)
        return latest if latest >= 0 else None

    def bytes_between(self, start: Offset, end: Offset) -> int:
        """Bytes of the batches from the one that holds ``start`` up to, not including, the one that holds ``end``."""
        return self._segments.bytes_between(start, end)

    def truncate_to(self, offset: Offset, *, durable: bool | None = None) -> Offset:
        """Truncate the log to ``offset``, or to the start of the batch that holds it. Return the LEO.

        With ``durable`` (default: as the settings say) file, directory and checkpoints are durable on return, and thus
        before the next append (M55). HW and recovery point are lowered with it (M41). Raises `StorageFailed`.
        """
        durable = self.settings.durable if durable is None else durable
        if offset >= self.leo:
            return self.leo
        if offset < max(self._log_start_offset, self._segments.first_offset):
            return self.truncate_fully_and_start_at(offset, durable=durable)
        segment = self._segments.holding(offset)
        batch = segment.batch_holding(offset)
        # A batch has one CRC and cannot be shortened; what is cut with it is fetched again.
        leo = batch.header.base_offset
        self.checkpoints.lower(self.name, leo, durable=durable)
        self.checkpoints.settle()
        # Before the cut: once the log has grown again, a snapshot of batches that were cut would pass for a sound one.
        drop_snapshots_above(self.directory, leo)
        self._segments.drop_above(segment)
        segment.truncate(batch.position, leo, durable=durable)
        self._segments.unsynced.wrote(segment)
        if durable:
            # A segment that a power failure brought back could continue the batches that are appended next (M55).
            sync_directory(self.directory)
        return leo

    def truncate_fully_and_start_at(
        self,
        offset: Offset,
        producers: Sequence[ProducerBatch] = (),
        transactions: TransactionState = NO_TRANSACTIONS,
        *,
        durable: bool | None = None,
    ) -> Offset:
        """Drop every record and begin, empty, at ``offset`` (M30), with the producer state below it (C43).

        Return the LEO. The producer state is durable before the new start, so a log that begins there has it.

        Raises:
            StorageFailed: the disk failed.
        """
        durable = self.settings.durable if durable is None else durable
        has_state = bool(producers) or transactions != NO_TRANSACTIONS
        if has_state:
            begin_with_snapshot(self.directory, offset, producers, transactions, durable=durable)
        self.checkpoints.lower(self.name, offset, durable=durable)
        self._save_log_start(offset, durable=durable)
        self.checkpoints.settle()
        # Only now: until the journal has the new start, the old log may return and needs its snapshots.
        drop_snapshots_except(self.directory, offset if has_state else None)
        self._segments.restart(offset)
        if durable:
            self._segments.unsynced.sync_now()
        return self.leo

    def advance_log_start(self, offset: Offset, *, durable: bool | None = None) -> None:
        """Advance the log start to ``offset`` (<= LEO) and remove the segments that lie wholly below it.

        If there are none, the log start is in the journal only when `Checkpoints.settle` returns.

        Raises:
            StorageFailed: the disk failed.
        """
        assert offset <= self.leo, f"log start {offset} above the log end {self.leo}"
        if offset <= self._log_start_offset:
            return
        self._save_log_start(offset, durable=self.settings.durable if durable is None else durable)
        # Saved first: a power failure may undo the removal of an older segment and keep that of a newer one. Recovery
        # removes what lies below the saved start unread; without it the gap would count as damage.
        if self._segments.drops_below(offset):
            self.checkpoints.settle()
            self._segments.drop_below(offset)

    def segments_expired(self, now_ms: int, high_watermark: Offset) -> Offset | None:
        """The offset to which retention can move the log start; None if it stays. ``now_ms`` is wall-clock time."""
        target = expired_upto(
            tuple(self._segments),
            high_watermark=high_watermark,
            now_ms=now_ms,
            retention_bytes=self.settings.retention_bytes,
            retention_ms=self.settings.retention_ms,
            ahead_ms=self.settings.timestamp_after_max_ms,
        )
        return target if target is not None and target > self._log_start_offset else None

    def retention_waits_until_ms(self, now_ms: int) -> int | None:
        """The future time from which the age of the oldest segment counts; None if retention by time is off or does not
        wait. ``now_ms`` is wall-clock time."""
        if self.settings.retention_ms is None:
            return None
        ahead_ms = self.settings.timestamp_after_max_ms
        return waits_until_ms(tuple(self._segments), now_ms=now_ms, ahead_ms=ahead_ms)

    def forget(self, *, moved: bool = False) -> None:
        """Close the log for good and drop everything saved for it. ``moved``: its directory is kept for a while."""
        self.checkpoints.forget(self.name, durable=self.settings.durable, deleted=not moved, moved=moved)
        self.close(clean=False)

    def _save_log_start(self, offset: Offset, *, durable: bool) -> None:
        self._log_start_offset = offset
        self.checkpoints.log_starts.put(self.name, offset)
        self.checkpoints.save(self.checkpoints.log_starts, durable=durable)

    def _settle_start(self, found_leo: Offset) -> None:
        """Make log start and segments agree after opening; a log that ends below its start begins again, empty."""
        if len(self._segments) and found_leo >= self._log_start_offset:
            self._log_start_offset = max(self._log_start_offset, self._segments.first_offset)
            self._segments.drop_below(self._log_start_offset)
        else:
            self._segments.restart(self._log_start_offset)

    def save_epochs(self, entries: Sequence[EpochEntry], *, durable: bool | None = None) -> None:
        """Save the epochs of this log (M36); they are in the journal when `Checkpoints.settle` returns."""
        durable = self.settings.durable if durable is None else durable
        self.checkpoints.save_epochs(self.name, entries, durable=durable)

    def save_producers(
        self, offset: Offset, rows: Sequence[ProducerBatch], transactions: TransactionState = NO_TRANSACTIONS
    ) -> None:
        """Write a snapshot of the producer state as of ``offset`` (M61); the newest two are kept.

        Raises:
            StorageFailed: the disk failed.
        """
        save_snapshot(self.directory, offset, rows, transactions)

    def producers(self) -> ProducerLedger:
        """The producer state at the LEO, from the newest sound snapshot and the batches behind it.

        Raises:
            StorageDamaged: a header is damaged, or a control batch is no marker.
        """
        offset, rows, transactions = newest_snapshot(self.directory, self.leo)
        ledger = ProducerLedger(rows, transactions)
        for found in self.batches(max(offset, self._log_start_offset)):
            header = found.header
            if header.base_offset >= offset:
                ledger.observe(
                    self._read_marker(found) if header.attributes & CONTROL_BIT else header, header.base_offset
                )
        return ledger

    def _read_marker(self, found: FoundBatch) -> BatchHeader:
        header = found.header
        segment = self._segments.holding(header.base_offset)
        content = segment.read(header.base_offset, header.size_bytes, header.next_offset, at_least_one=True).payload
        try:
            return with_marker(header, content)
        except Refused as error:
            raise StorageDamaged(found.path, found.batch.position, str(error)) from error


def _saved_epochs(checkpoints: Checkpoints, name: LogName) -> Sequence[EpochEntry]:
    try:
        return checkpoints.epochs_of(name) or ()
    except CheckpointDamaged:
        # As good as none: the epochs are then read from the batches, which override the file anyway (M55).
        return ()
