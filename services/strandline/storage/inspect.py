"""Reads a log directly from its files: every batch as stored, and whether copies agree.

Invariant: nothing is locked, written or repaired here, so it can be used while the node runs. The last bytes of a log
in use may look torn; comparisons end at a high watermark for that reason (M62).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from strandline.core.errors import Refused
from strandline.core.log.producers import ProducerLedger
from strandline.core.types import CONTROL_BIT, BatchHeader, EpochEntry, Offset
from strandline.records.batch import crc_matches
from strandline.records.codec import with_marker
from strandline.storage.checkpoint_files import CheckpointDamaged, LogName
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.directory import lost_journal
from strandline.storage.layout import log_name, segment_base, segment_paths
from strandline.storage.open_files import OpenFile
from strandline.storage.producer_snapshot import newest_snapshot
from strandline.storage.scan import ALL_OFFSETS, BatchScan, StoredBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    """One batch as stored in a file, or the place where no batch can be read."""

    path: Path
    position: int
    header: BatchHeader | None
    """``None`` if the bytes are no batch; nothing after them in this file is read."""
    crc_ok: bool
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The start and end of a log according to its files."""

    log_start_offset: Offset
    leo: Offset
    high_watermark: Offset
    """The checkpointed one, 0 without one; a few seconds old on a running node."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogComparison:
    """Whether copies of a log hold the same batches between two offsets (M62)."""

    start: Offset
    end: Offset
    batches: int
    size_bytes: int
    """Bytes that were found equal, in one copy."""
    leo: Offset = Offset(0)
    """The end of the longest copy; batches above ``end`` were not compared."""
    first_difference: Offset | None = None
    reason: str | None = None

    @property
    def equal(self) -> bool:
        """Whether no difference was found."""
        return self.reason is None


def log_directories(data_directory: Path) -> dict[LogName, Path]:
    """The logs of a data directory by topic and partition."""
    found: dict[LogName, Path] = {}
    for path in sorted(data_directory.iterdir()):
        if path.is_dir() and segment_paths(path):
            try:
                found[log_name(path)] = path
            except ValueError:
                continue
    return found


def dump_log(directory: Path, from_offset: Offset | int = 0) -> Iterator[DumpedBatch]:
    """Every batch of a log that ends above ``from_offset``, with its CRC checked; damage is reported, not raised."""
    paths = segment_paths(directory)
    for path, following in zip_longest(paths, paths[1:]):
        if following is not None and segment_base(following) <= from_offset:
            continue
        yield from (
            batch for batch in dump_segment(path) if batch.header is None or batch.header.next_offset > from_offset
        )


def dump_segment(path: Path) -> Iterator[DumpedBatch]:
    """Every batch of one segment file, with its CRC checked."""
    file = _open(path)
    scan = _headers(file, segment_base(path))
    for batch in scan:
        crc_ok = crc_matches(memoryview(os.pread(file.fd, batch.header.size_bytes, batch.position)), batch.header.crc)
        header, fault = batch.header, None if crc_ok else "the CRC does not match"
        if crc_ok and header.attributes & CONTROL_BIT:
            header, fault = _with_marker(file, batch)
        yield DumpedBatch(path=path, position=batch.position, header=header, crc_ok=crc_ok, fault=fault)
    if scan.fault is not None:
        yield DumpedBatch(path=path, position=scan.position, header=None, crc_ok=False, fault=scan.fault)


def headers_from(directory: Path, offset: Offset) -> Iterator[BatchHeader]:
    """The headers of the batches that begin at or above ``offset``, with their markers but without a check of CRCs, up
    to the first place where nothing can be read."""
    paths = segment_paths(directory)
    for path, following in zip_longest(paths, paths[1:]):
        if following is not None and segment_base(following) <= offset:
            continue
        file = _open(path)
        scan = _headers(file, segment_base(path))
        for batch in scan:
            is_marker = batch.header.attributes & CONTROL_BIT
            header, fault = _with_marker(file, batch) if is_marker else (batch.header, None)
            if fault is not None:
                return
            if header.base_offset >= offset:
                yield header
        if scan.fault is not None:
            return


def _with_marker(file: OpenFile, batch: StoredBatch) -> tuple[BatchHeader, str | None]:
    """The header of a control batch with its marker, or why it is none."""
    content = os.pread(file.fd, batch.header.size_bytes, batch.position)
    try:
        return with_marker(batch.header, content), None
    except Refused as refused:
        return batch.header, refused.refusal.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Topic id and epochs of a log, from its small files and the journal."""

    topic_id: str | None
    epochs: tuple[EpochEntry, ...]


def described(directory: Path, checkpoints: Checkpoints | None = None) -> Described:
    """Topic id and epochs of a log.

    Raises:
        CheckpointDamaged: one of the files is damaged, and the journal has nothing newer.
    """
    checkpoints = checkpoints or Checkpoints.load(directory.parent)
    name = log_name(directory)
    return Described(topic_id=checkpoints.topic_id_of(name), epochs=checkpoints.epochs_of(name) or ())


class NoMetadata(Exception):
    """A node's directory holds neither metadata nor logs."""


def stored_metadata(data_directory: Path) -> bytes:
    """The newest metadata that a node received, from its files and its journal.

    Raises:
        CheckpointDamaged: the journal is damaged, so newer metadata may be missing.
        NoMetadata: the node never received any about a topic.
        FileNotFoundError: there are logs but no metadata, so it is missing.
    """
    checkpoints = Checkpoints.load(data_directory)
    fault = checkpoints.fault or lost_journal(data_directory, checkpoints)
    if fault is not None:
        raise CheckpointDamaged(data_directory, fault)
    content = checkpoints.metadata()
    if content is not None:
        return content
    if log_directories(data_directory):
        raise FileNotFoundError(f"{data_directory} holds logs, but no metadata")
    raise NoMetadata(f"{data_directory} holds neither logs nor metadata")


def log_bounds(directory: Path, checkpoints: Checkpoints | None = None) -> LogBounds:
    """Log start, end and saved HW of a log, from headers only."""
    name, paths = log_name(directory), segment_paths(directory)
    checkpoints = checkpoints or Checkpoints.load(directory.parent)
    log_start = checkpoints.log_starts.get(name)
    high_watermark = checkpoints.high_watermarks.get(name)
    first = segment_base(paths[0]) if paths else Offset(0)
    # As at a start of the node: a log that ends below its start begins again there.
    leo = max(_end_of(paths[-1]) if paths else Offset(0), log_start or 0)
    return LogBounds(
        log_start_offset=max(first, log_start or Offset(0)),
        leo=Offset(leo),
        high_watermark=min(high_watermark or Offset(0), Offset(leo)),
        size_bytes=sum(path.stat().st_size for path in paths),
    )


def compare_logs(
    directories: Sequence[Path], *, start: Offset | None = None, end: Offset | None = None
) -> LogComparison:
    """Compare copies of one log batch by batch, byte by byte; segment borders may differ.

    By default from the highest log start to the lowest checkpointed HW.
    """
    bounds = [log_bounds(directory) for directory in directories]
    low = max(bound.log_start_offset for bound in bounds) if start is None else start
    high = min(bound.high_watermark for bound in bounds) if end is None else end
    leo = max(bound.leo for bound in bounds)
    batches = size_bytes = 0
    expected = low
    for copies in zip_longest(*(_raw_batches(directory, low, high) for directory in directories)):
        reason = _difference(copies, directories)
        if reason is not None:
            return LogComparison(
                start=low,
                end=high,
                batches=batches,
                size_bytes=size_bytes,
                leo=leo,
                first_difference=expected,
                reason=reason,
            )
        first = copies[0]
        assert first is not None
        batches, size_bytes, expected = batches + 1, size_bytes + len(first.content), first.next_offset
    return LogComparison(start=low, end=high, batches=batches, size_bytes=size_bytes, leo=leo)


@dataclass(frozen=True, slots=True)
class _RawBatch:
    base_offset: int
    next_offset: Offset
    content: bytes
    crc_ok: bool


def _difference(copies: Sequence[_RawBatch | None], directories: Sequence[Path]) -> str | None:
    for copy, directory in zip(copies, directories, strict=True):
        if copy is None:
            return f"{directory} ends before the others"
        if not copy.crc_ok:
            return f"the CRC of the batch at {copy.base_offset} in {directory} does not match"
        first = copies[0]
        if first is not None and copy.content != first.content:
            return f"{directory} and {directories[0]} hold different batches at {copy.base_offset}"
    return None


def _raw_batches(directory: Path, start: Offset, end: Offset) -> Iterator[_RawBatch]:
    paths = segment_paths(directory)
    for path, following in zip_longest(paths, paths[1:]):
        if following is not None and segment_base(following) <= start:
            continue
        file = _open(path)
        for batch in _headers(file, segment_base(path)):
            if batch.next_offset > end:
                return
            if batch.header.base_offset >= start:
                content = os.pread(file.fd, batch.header.size_bytes, batch.position)
                crc_ok = crc_matches(memoryview(content), batch.header.crc)
                yield _RawBatch(batch.header.base_offset, batch.next_offset, content, crc_ok)


def _end_of(path: Path) -> Offset:
    scan = _headers(_open(path), segment_base(path))
    for _ in scan:
        pass
    return Offset(scan.next_offset or segment_base(path))


def _open(path: Path) -> OpenFile:
    return OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)


def _headers(file: OpenFile, base_offset: Offset) -> BatchScan:
    return BatchScan(file, 0, base_offset, end=os.fstat(file.fd).st_size, crc_from=ALL_OFFSETS)


# ---- stable_end
# How far read-committed consumers could read a log, and which transaction stops them, according to its files (X12).
#
# Invariant: the serving code computes the transactions, from the newest sound snapshot and the batches behind it.


class Holder(NamedTuple):
    """The transaction that the LSO waits for."""

    first_offset: Offset
    producer_id: int | None
    """None if the files only show that the transaction was decided."""
    producer_epoch: int | None
    """The transaction's producer epoch; None if unknown."""
    marker_offset: Offset | None
    """The offset of its marker; None while it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StableEnd:
    """The last stable offset at the saved HW; the node that wrote the files may be further."""

    last_stable_offset: Offset
    holder: Holder | None
    """None if every transaction below the HW is decided by a marker below it."""


def stable_end(directory: Path, bounds: LogBounds) -> StableEnd:
    """Compute the transactions of a log up to its end or to the first damage, and the stable end at its saved HW."""
    snapshot = newest_snapshot(directory, bounds.leo)
    ledger = ProducerLedger(snapshot.batches, snapshot.transactions)
    markers = {marker.offset: (marker.producer_id, marker.producer_epoch) for marker in snapshot.transactions.markers}
    for header in headers_from(directory, Offset(max(snapshot.offset, bounds.log_start_offset))):
        ledger.observe(header, header.base_offset)
        if header.marker is not None and header.producer is not None:
            markers[header.base_offset] = header.producer[:2]
    ledger.transactions.settled(bounds.high_watermark)
    holder = _holder(ledger, markers)
    if holder is None or holder.first_offset >= bounds.high_watermark:
        return StableEnd(last_stable_offset=bounds.high_watermark, holder=None)
    return StableEnd(last_stable_offset=holder.first_offset, holder=holder)


def _holder(ledger: ProducerLedger, markers: Mapping[Offset, tuple[int, int]]) -> Holder | None:
    """The transaction that began first among those that are open, or may be open again; ``markers`` by offset."""
    transactions = ledger.transactions
    found = [
        Holder(first_offset, producer_id, ledger.newest_epoch(producer_id), None)
        for producer_id, first_offset in transactions.open.items()
    ]
    for first_offset, marker_offset in transactions.ended:
        # Of markers below the snapshot only the last one of each producer is known.
        producer_id, marker_epoch = markers.get(marker_offset, (None, None))
        # A marker is in the epoch after its transaction's (X6).
        epoch = None if marker_epoch is None else marker_epoch - 1
        found.append(Holder(first_offset, producer_id, epoch, marker_offset))
    return min(found, default=None, key=lambda holder: holder.first_offset)
