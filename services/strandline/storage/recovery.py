"""Decides what to trust of a log when it is opened: after a clean stop its files, otherwise only matching CRCs.

Invariant: the result is a prefix of the batches that were written, it is durable before it is reported to anyone
(TR17), and a second recovery gives the same result as the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.storage.disk import remove, sync_data, sync_directory, truncate_file, write_again
from strandline.storage.layout import remove_segment_files, segment_base, segment_paths
from strandline.storage.open_files import OpenFiles
from strandline.storage.scan import ALL_OFFSETS, StoredBatch
from strandline.storage.segment import Segment

_LEFTOVER_SUFFIXES = (".tmp", ".deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found and done when a log was opened."""

    was_clean: bool
    log_start_offset: Offset
    leo: Offset
    epochs: tuple[EpochEntry, ...]
    """The epochs for the core's cache: batches override the file, and none starts at or above the LEO (M55)."""
    bytes_checked: int = 0
    """Bytes whose CRC was computed."""
    bytes_cut: int = 0
    """Bytes that were removed from the files: a torn tail, or damage and everything behind it."""
    first_bad_file: Path | None = None
    first_bad_position: int | None = None
    fault: str | None = None
    """What was wrong at the first bad byte."""
    segments_rebuilt: int = 0
    """Segments whose index files were missing or wrong."""
    epochs_rebuilt: bool = False
    """Whether every batch header was read because the epoch checkpoint could not be trusted."""
    ended_below_durable_point: bool = False
    """Whether the log ends below the offset up to which it was known to be durable: the node is unclean (M58)."""
    ended_below_high_watermark: bool = False
    """Whether the log ends below its checkpointed HW: the node is unclean (M58)."""

    @property
    def lost_durable_records(self) -> bool:
        """Whether the node must register as unclean (M58)."""
        return self.ended_below_durable_point or self.ended_below_high_watermark


@dataclass(slots=True)
class SegmentLoader:
    """Opens the segments of one log, one after the other; everything from the first fault on is dropped."""

    directory: Path
    log_start: Offset
    """Segments wholly below it are removed unread: a crash left them behind after their deletion was decided."""
    trusted_below: Offset
    """Batches that end at or below it need no CRC: they were durable, or the last stop was clean."""
    index_interval_bytes: int
    files: OpenFiles
    segments: list[Segment] = field(default_factory=list)
    tail: list[EpochEntry] = field(default_factory=list)
    """Epochs of the unbroken run of headers that were read up to the end of the log: the first entry is the start of
    the run, the others are the starts of their epochs. Empty if the last headers were not read."""
    _tail_end: Offset | None = None
    bytes_checked: int = 0
    bytes_cut: int = 0
    bad_file: Path | None = None
    bad_position: int | None = None
    fault: str | None = None
    rebuilt: int = 0

    def load(self) -> None:
        """Fill ``segments``; what cannot be trusted is cut off or removed, durably. Raises `StorageFailed`."""
        _remove_leftovers(self.directory)
        for path in self._drop_below_start(segment_paths(self.directory)):
            expected = self.segments[-1].next_offset if self.segments else segment_base(path)
            # A missing segment is a fault like a damaged one: behind the gap nothing continues the log.
            if self.fault is None and segment_base(path) != expected:
                self._blame(path, 0, f"the segment begins at {segment_base(path)}, expected {expected}")
            if self.fault is None:
                self._load_segment(path)
            else:
                # Sound batches behind the fault go as well: a log is a prefix, and the leader has them.
                self._drop(path)
        if self.segments and self._tail_end != self.segments[-1].next_offset:
            # The headers that were read are in an older segment and say nothing about later epochs.
            self.tail = []
        # A power failure must not bring removed segments back behind the batches that are appended next.
        if self.fault is not None:
            sync_directory(self.directory)

    def sync(self) -> None:
        """Make durable what no commit is known to cover (TR17); the last run may have ended with a failed sync.

        Raises:
            StorageFailed: the disk failed.
        """
        for segment in self.segments:
            # What was read may be in the page cache alone: reported now, it could be counted and then lost with the
            # power (TR17).
            if segment.next_offset > self.trusted_below:
                first = segment.locate(max(self.trusted_below, segment.base_offset))
                file = segment.file()
                write_again(file.fd, segment.path, first, segment.size_bytes)
                sync_data(file.fd, segment.path)
        # Segments that the last run created may not have durable entries.
        if self.trusted_below < ALL_OFFSETS:
            sync_directory(self.directory)

    def _drop_below_start(self, paths: list[Path]) -> list[Path]:
        kept = [
            path for path, after in zip_longest(paths, paths[1:]) if not after or segment_base(after) > self.log_start
        ]
        for path in paths[: len(paths) - len(kept)]:
            remove_segment_files(path)
        return kept

    def _load_segment(self, path: Path) -> None:
        segment = Segment.open(path, self.index_interval_bytes, self.files)
        if not segment.resume(self.trusted_below) and segment.file_bytes() > self.index_interval_bytes:
            self.rebuilt += 1
        scan = segment.scan(self.trusted_below)
        # Epochs do not fall from one segment to the next either (I0).
        scan.last_epoch = self.tail[-1].epoch if self.tail else LeaderEpoch(0)
        for batch in scan:
            segment.note(batch)
            self._see(batch)
        self.bytes_checked += scan.bytes_checked
        self.segments.append(segment)
        if scan.fault is not None:
            self._blame(path, scan.position, scan.fault)
            self.bytes_cut += segment.file_bytes() - segment.size_bytes
            segment.remove_indexes()
            file = segment.file()
            # Durable before the next append, or a power failure could bring the old tail back behind new batches.
            truncate_file(file.fd, path, segment.size_bytes)
            sync_data(file.fd, path)

    def _see(self, batch: StoredBatch) -> None:
        entry = _entry_of(batch)
        if entry.start_offset != self._tail_end:
            self.tail = [entry]
        elif entry.epoch > self.tail[-1].epoch:
            self.tail.append(entry)
        self._tail_end = batch.next_offset

    def _blame(self, path: Path, position: int, fault: str) -> None:
        self.bad_file, self.bad_position, self.fault = path, position, fault

    def _drop(self, path: Path) -> None:
        self.bytes_cut += path.stat().st_size
        remove_segment_files(path)


@dataclass(frozen=True, slots=True)
class BelievedEpochs:
    """The epoch entries to use, and whether every batch was read for them."""

    entries: list[EpochEntry]
    rebuilt: bool = False


def believed_epochs(
    saved: Sequence[EpochEntry], segments: Sequence[Segment], tail: Sequence[EpochEntry], leo: Offset
) -> BelievedEpochs:
    """Make the ``saved`` epochs agree with the batches; batches override them (M55).

    ``tail`` are the epochs of the headers that were read while opening. Below them the saved epochs are used, unless
    they are missing or contradict the tail; then every header is read.
    """
    tail = tail or _last_batch(segments)
    if not tail:
        return BelievedEpochs([])
    # What is saved above and not in the tail has no batch: such a phantom could cut committed records (TR14).
    below = [entry for entry in saved if entry.start_offset <= tail[0].start_offset]
    if below and below[-1].epoch == tail[0].epoch:
        return BelievedEpochs([entry for entry in (*below, *tail[1:]) if entry.start_offset < leo])
    return BelievedEpochs(_epochs_of_batches(segments), rebuilt=True)


def _last_batch(segments: Sequence[Segment]) -> list[EpochEntry]:
    for segment in reversed(segments):
        if segment.size_bytes:
            return [_entry_of(segment.batch_holding(Offset(segment.next_offset - 1)))]
    return []


def _epochs_of_batches(segments: Sequence[Segment]) -> list[EpochEntry]:
    entries: list[EpochEntry] = []
    for segment in segments:
        for entry in map(_entry_of, segment.batches()):
            if not entries or entry.epoch > entries[-1].epoch:
                entries.append(entry)
    return entries


def _entry_of(batch: StoredBatch) -> EpochEntry:
    return EpochEntry(batch.header.stamped_epoch, batch.header.base_offset)


def _remove_leftovers(directory: Path) -> None:
    logs = {path.stem for path in segment_paths(directory)}
    for path in directory.iterdir():
        is_orphan = path.suffix in (".index", ".timeindex") and path.stem not in logs
        if is_orphan or path.suffix in _LEFTOVER_SUFFIXES:
            remove(path)
