"""Decides whether bytes in a file are a sound batch in the right place, and where the sound batches end.

Invariant: a scan yields a prefix of what was written: it stops for good at the first batch that is torn, damaged, out
of place, or has a lower epoch than the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from strandline.core.errors import Refused
from strandline.core.types import BatchHeader, LeaderEpoch, Offset
from strandline.records.batch import HEADER_BYTES, MAGIC, UNPACKED_RECORDS, crc_matches, is_dense, parse_header
from strandline.storage.disk import StorageDamaged
from strandline.storage.open_files import OpenFile

_CRC_CHUNK_BYTES = 1 << 20
# A scan of headers jumps from batch to batch: it reads a page at a time and skips most of the records.
_HEADER_CHUNK_BYTES = 1 << 12
ALL_OFFSETS = Offset((1 << 63) - 1)
"""As ``crc_from``: read headers only."""


class StoredBatch(NamedTuple):
    """One sound batch and the byte of the file where it begins."""

    header: BatchHeader
    position: int

    @property
    def next_offset(self) -> Offset:
        """Exclusive end of the batch."""
        return self.header.next_offset

    @property
    def end_position(self) -> int:
        """First byte behind the batch."""
        return self.position + self.header.size_bytes


class BatchScan:
    """Iterates over the sound batches of a file from ``position``; afterwards it knows where and why it stopped."""

    __slots__ = (
        "_buffer",
        "_buffer_at",
        "_crc_from",
        "_file",
        "bytes_checked",
        "end",
        "fault",
        "last_epoch",
        "next_offset",
        "position",
    )

    def __init__(
        self, file: OpenFile, position: int, next_offset: Offset | None, *, end: int, crc_from: Offset = Offset(0)
    ) -> None:
        """Scan bytes ``position`` to ``end``; batches that end above ``crc_from`` have their CRC checked.

        ``next_offset`` is the base offset that the first batch must have; ``None`` accepts any.
        """
        self._file = file
        self.position = position
        self.next_offset = next_offset
        self.end = end
        self._crc_from = crc_from
        self.last_epoch = 0
        self.bytes_checked = 0
        """Bytes whose CRC was computed."""
        self.fault: str | None = None
        """Why the scan stopped before ``end``; ``None`` if it did not."""
        self._buffer = memoryview(b"")
        self._buffer_at = 0

    def __iter__(self) -> Iterator[StoredBatch]:
        while self.position < self.end:
            batch = self._next()
            if batch is None:
                return
            self.position, self.next_offset = batch.end_position, batch.next_offset
            self.last_epoch = batch.header.stamped_epoch
            yield batch

    def _next(self) -> StoredBatch | None:
        left = self.end - self.position
        if left < HEADER_BYTES:
            self.fault = f"{left} bytes are left, less than a header"
            return None
        start = self._bytes(HEADER_BYTES, _HEADER_CHUNK_BYTES)
        if len(start) < HEADER_BYTES:
            self.fault = "the file is shorter than what was written"
            return None
        header = parse_header(start)
        self.fault = self._header_fault(header, left)
        if self.fault is not None:
            return None
        batch = StoredBatch(header, self.position)
        if batch.next_offset > self._crc_from:
            self.bytes_checked += header.size_bytes
            if not crc_matches(self._bytes(header.size_bytes, _CRC_CHUNK_BYTES), header.crc):
                self.fault = "the CRC does not match"
                return None
        return batch

    def _header_fault(self, header: BatchHeader, left: int) -> str | None:
        fault = header_fault(header, left)
        if fault is not None:
            return fault
        # The CRC leaves out base offset and epoch, which the leader stamps: only their order shows damage.
        if self.next_offset is not None and header.base_offset != self.next_offset:
            return f"base offset is {header.base_offset}, expected {self.next_offset}"
        # A stored batch is stamped by its leader; only what a producer sends has no epoch.
        if header.leader_epoch is None:
            return "it carries no leader epoch"
        if header.leader_epoch < self.last_epoch:
            return f"leader epoch {header.leader_epoch} follows {self.last_epoch}"
        return None

    def _bytes(self, wanted: int, chunk: int) -> memoryview:
        """``wanted`` bytes from ``position``, read ``chunk`` bytes at a time."""
        start = self.position - self._buffer_at
        if start < 0 or start + wanted > len(self._buffer):
            size = min(max(wanted, chunk), self.end - self.position)
            self._buffer = memoryview(self._file.read(size, self.position))
            self._buffer_at, start = self.position, 0
        return self._buffer[start : start + wanted]


def header_fault(header: BatchHeader, left: int) -> str | None:
    """Why these fields cannot be the header of a batch with ``left`` bytes from its start on, or ``None``."""
    if header.magic != MAGIC:
        return f"magic is {header.magic}"
    if not HEADER_BYTES <= header.size_bytes <= left:
        return f"the batch is {header.size_bytes} bytes long, {left} are left"
    if not is_dense(header):
        return f"{header.record_count} records and last offset delta {header.last_offset_delta} disagree"
    return None


# ---- time_search
# Finds the first record at or after a time, in separately opened files, so that any thread can search.
#
# Invariant: a search reads the files' content at the time it was made, whatever happens to the log meanwhile: a deleted
# segment stays readable for it, and a truncated one ends it with `StorageDamaged`.

_Item = TypeVar("_Item")


class Pace(Protocol):
    """Yields the same batches or records; between two of them it may let other threads run."""

    def __call__(self, items: Iterable[_Item], /) -> Iterable[_Item]:
        """Yield the items in order."""
        ...


class Part:
    """The rest of one segment, from a batch border on."""

    def __init__(self, file: OpenFile, position: int, end: int) -> None:
        # The reference keeps the file open.
        self._file = file
        self._position = position
        self._end = end

    def batches(self) -> Iterator[StoredBatch]:
        """The headers, in order.

        Raises:
            StorageDamaged: a header is damaged, or no longer there.
        """
        scan = BatchScan(self._file, self._position, None, end=self._end, crc_from=ALL_OFFSETS)
        yield from scan
        if scan.fault is not None:
            raise StorageDamaged(self._file.path, scan.position, scan.fault)

    def read(self, batch: StoredBatch) -> bytes:
        """The bytes of a batch, unchecked."""
        return self._file.read(batch.header.size_bytes, batch.position)


class FoundInPart(NamedTuple):
    """A batch, and the part that holds its bytes."""

    batch: StoredBatch
    part: Part

    @property
    def header(self) -> BatchHeader:
        """The batch's header."""
        return self.batch.header

    def payload(self) -> bytes:
        """The bytes of the batch, unchecked."""
        return self.part.read(self.batch)


class FoundRecord(NamedTuple):
    """The first record at or after a time; ``timestamp_ms`` is None if the record has none."""

    offset: Offset
    timestamp_ms: int | None
    leader_epoch: LeaderEpoch


class TimeSearch:
    """Looks for the first batch of ``parts`` that reaches a time, between a log start and an end."""

    def __init__(self, timestamp_ms: int, start: Offset, end: Offset, parts: list[Part]) -> None:
        self._timestamp_ms = timestamp_ms
        self._start = start
        self._end = end
        self._parts = parts

    def first(self, pace: Pace = iter) -> FoundInPart | None:
        """The first batch that holds a record at or after the time and ends at or below the end.

        Raises:
            StorageDamaged: a file is damaged, or was truncated meanwhile.
        """
        for part in self._parts:
            for batch in pace(part.batches()):
                if batch.next_offset > self._end:
                    return None
                if batch.next_offset > self._start and batch.header.max_timestamp_ms >= self._timestamp_ms:
                    return FoundInPart(batch, part)
        return None

    def first_record(self, pace: Pace = iter) -> FoundRecord | None:
        """The first record at or after the time; if its batch cannot be decoded, the batch's start and timestamp.

        Raises:
            StorageDamaged: as `first`.
        """
        found = self.first(pace)
        if found is None:
            return None
        header = found.header
        record = self._record_in(found, pace)
        if record is None:
            # The log start may lie within the batch (C100).
            record = max(header.base_offset, self._start), header.max_timestamp_ms
        return FoundRecord(*record, header.stamped_epoch)

    def _record_in(self, found: FoundInPart, pace: Pace) -> tuple[Offset, int | None] | None:
        """The record in a batch; None if its records are not read one by one, or cannot be."""
        # Imported here, because the codec is large and nothing else in storage needs it.
        from strandline.records.codec import iterate_batch

        if found.header.record_count > UNPACKED_RECORDS:
            # It is compressed, and was made to be expensive.
            return None
        try:
            for record in pace(iterate_batch(found.payload())):
                timestamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
                if timestamp_ms >= self._timestamp_ms and record.offset >= self._start:
                    return record.offset, record.timestamp_ms
        except Refused:
            # The CRC matches, so the producer compressed something other than records.
            pass
        return None

    def close(self) -> None:
        """Release the files."""
        self._parts.clear()
