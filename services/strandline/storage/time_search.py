"""How the first record at or after a time is found: in files opened apart, so that any thread may look.

Invariant: a search reads what the files held when it was made, whatever becomes of the log meanwhile: a segment that is
deleted stays readable for it, and one that was cut ends it with `StorageDamaged`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from strandline.core.errors import Refused
from strandline.core.types import BatchHeader, LeaderEpoch, Offset
from strandline.records.batch import UNPACKED_RECORDS
from strandline.storage.disk import StorageDamaged
from strandline.storage.open_files import OpenFile
from strandline.storage.scan import ALL_OFFSETS, BatchScan, StoredBatch

_Item = TypeVar("_Item")


class Pace(Protocol):
    """Gives the same batches or records; between two of them it may let other threads run."""

    def __call__(self, items: Iterable[_Item], /) -> Iterable[_Item]:
        """One after another."""
        ...


class Part:
    """The rest of one segment, from a batch border on."""

    def __init__(self, file: OpenFile, path: Path, position: int, end: int) -> None:
        self.path = path
        # Open for as long as this is there.
        self._file = file
        self._position = position
        self._end = end

    def batches(self) -> Iterator[StoredBatch]:
        """Headers, one after another.

        Raises:
            StorageDamaged: a header is not what was written, or not there any more.
        """
        scan = BatchScan(self._file, self._position, None, end=self._end, crc_from=ALL_OFFSETS)
        yield from scan
        if scan.fault is not None:
            raise StorageDamaged(self.path, scan.position, scan.fault)

    def read(self, batch: StoredBatch) -> bytes:
        """The bytes of a batch, unchecked."""
        return os.pread(self._file.fd, batch.header.size_bytes, batch.position)


class FoundInPart(NamedTuple):
    """A batch, and where its bytes lie."""

    batch: StoredBatch
    part: Part

    @property
    def header(self) -> BatchHeader:
        """The batch's header."""
        return self.batch.header

    def payload(self) -> bytes:
        """Its bytes, unchecked."""
        return self.part.read(self.batch)


class FoundRecord(NamedTuple):
    """The first record at or after a time; ``timestamp_ms`` is None if it has none of its own."""

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
            StorageDamaged: a file is not what was written, or was cut meanwhile.
        """
        for part in self._parts:
            for batch in pace(part.batches()):
                if batch.next_offset > self._end:
                    return None
                if batch.next_offset > self._start and batch.header.max_timestamp_ms >= self._timestamp_ms:
                    return FoundInPart(batch, part)
        return None

    def first_record(self, pace: Pace = iter) -> FoundRecord | None:
        """The first record at or after the time; the batch's start and time where its records cannot be read.

        Raises:
            StorageDamaged: as `first`.
        """
        found = self.first(pace)
        if found is None:
            return None
        header = found.header
        record = self._record_in(found, pace)
        if record is None:
            record = max(header.base_offset, self._start), header.max_timestamp_ms
        return FoundRecord(*record, header.stamped_epoch)

    def _record_in(self, found: FoundInPart, pace: Pace) -> tuple[Offset, int | None] | None:
        """The record in a batch; None if its records are not read one by one, or cannot be."""
        # Imported here: the codec is large, and of all that storage does only this needs it.
        from strandline.records.codec import iterate_batch

        if found.header.record_count > UNPACKED_RECORDS:
            # It is compressed, and was made to cost.
            return None
        try:
            for record in pace(iterate_batch(found.payload())):
                timestamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
                if timestamp_ms >= self._timestamp_ms and record.offset >= self._start:
                    return record.offset, record.timestamp_ms
        except Refused:
            # The CRC holds, so the producer compressed something else than records.
            pass
        return None

    def close(self) -> None:
        """Give every file back."""
        self._parts.clear()
