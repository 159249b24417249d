"""A run of batches in one file, and the search for the batch that holds an offset.

Invariant: bytes 0 to ``size_bytes`` are whole batches, with dense offsets from ``base_offset`` to ``next_offset``; the
two indexes only make the search faster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from strandline.core.types import BatchHeader, Offset
from strandline.records.batch import HEADER_BYTES, crc_matches, parse_header
from strandline.storage.disk import Buffer, StorageDamaged, remove, rename_file, sync_data, truncate_file, write_at
from strandline.storage.index import OffsetIndex, TimeIndex
from strandline.storage.layout import DELETED_SUFFIX, remove_in_thread, segment_base, segment_path
from strandline.storage.open_files import FileOf, OpenFiles
from strandline.storage.scan import ALL_OFFSETS, BatchScan, Part, StoredBatch, header_fault

MAX_SEGMENT_BYTES = (1 << 31) - 1
"""Positions and relative offsets are 32 bits wide in the index files."""


class Chunk(NamedTuple):
    """Whole batches that were read, and the exclusive end offset of the last one."""

    payload: bytes
    end: Offset
    """If no batch was read, the offset at which the read began."""


class Segment:
    """One ``<base offset>.log`` file with its ``.index`` and ``.timeindex``."""

    __slots__ = (
        "_first_timestamp_ms",
        "_index",
        "_index_interval_bytes",
        "_index_is_ours",
        "_max_timestamp_offset",
        "_since_index_bytes",
        "_times",
        "base_offset",
        "file",
        "max_timestamp_ms",
        "next_offset",
        "path",
        "size_bytes",
        "writes",
    )

    def __init__(self, file: FileOf, index_interval_bytes: int) -> None:
        self.path = file.path
        self.file = file
        self.base_offset = segment_base(file.path)
        self._index_interval_bytes = index_interval_bytes
        self.writes = 0
        """Counts changes of the file, so that a finished sync knows whether it still covers everything."""
        self._forget()

    @classmethod
    def create(cls, directory: Path, base_offset: Offset, index_interval_bytes: int, files: OpenFiles) -> Segment:
        """Make an empty segment. Raises `StorageFailed`."""
        path = segment_path(directory, base_offset)
        return cls(FileOf(files, path, os.O_CREAT | os.O_TRUNC), index_interval_bytes)

    @classmethod
    def open(cls, path: Path, index_interval_bytes: int, files: OpenFiles) -> Segment:
        """Open a segment whose batches are not known yet: call `resume` and `replay` next. Raises `StorageFailed`."""
        return cls(FileOf(files, path), index_interval_bytes)

    def __repr__(self) -> str:
        return f"<Segment {self.base_offset}..{self.next_offset} {self.size_bytes} bytes>"

    def append(self, buffers: Sequence[Buffer], batches: Sequence[BatchHeader]) -> None:
        """Write stamped batches behind the last one; ``batches`` are their headers.

        Raises:
            StorageFailed: the disk failed; the file may end torn.
        """
        file = self.file()
        write_at(file.fd, self.path, buffers, self.size_bytes)
        self.file.written(file)
        self.writes += 1
        for header in batches:
            self._note(Offset(self.next_offset + header.record_count), header.max_timestamp_ms, header.size_bytes)

    def truncate(self, position: int, next_offset: Offset, *, durable: bool) -> None:
        """Truncate the file at the batch border ``position``; the next batch will begin at ``next_offset``.

        Raises:
            StorageFailed: the disk failed.
        """
        # First, so that no crash leaves a shorter file with the indexes of the longer one.
        self.remove_indexes()
        file = self.file()
        truncate_file(file.fd, self.path, position)
        if durable:
            sync_data(file.fd, self.path)
        else:
            self.file.written(file)
        # A commit that is under way does not cover the cut (M55).
        self.writes += 1
        self._rewind(next_offset)
        for _ in self.replay(ALL_OFFSETS):
            pass
        assert self.next_offset == next_offset, f"{self.path}, cut at {position}, ends at {self.next_offset}"

    def save_indexes(self) -> None:
        """Write both index files; they are rebuilt if a crash loses them. Raises `StorageFailed`."""
        self._times.maybe_append(self.max_timestamp_ms, self._max_timestamp_offset)
        self._index.save(self.path.with_suffix(".index"))
        self._times.save(self.path.with_suffix(".timeindex"))

    def remove(self) -> None:
        """Remove the segment and its indexes; a reader that has it open is not disturbed. Raises `StorageFailed`."""
        self.remove_indexes()
        self.file.close()
        gone = self.path.with_name(self.path.name + DELETED_SUFFIX)
        rename_file(self.path, gone)
        remove_in_thread(gone)

    def remove_indexes(self) -> None:
        """Unlink the index files: for a truncated file they would be wrong once it grows again.

        Raises:
            StorageFailed: the disk failed.
        """
        remove(self.path.with_suffix(".index"))
        remove(self.path.with_suffix(".timeindex"))

    def resume(self, trusted_below: Offset) -> bool:
        """Use the index files as far as they are below ``trusted_below``; `replay` reads the rest.

        Return whether anything could be used.
        """
        self._forget()
        index = OffsetIndex.load(self.path.with_suffix(".index"), self.base_offset, self.file_bytes())
        times = TimeIndex.load(self.path.with_suffix(".timeindex"), self.base_offset)
        if index is None or times is None:
            return False
        self._index, self._times, self._index_is_ours = index, times, False
        return self._rewind(trusted_below)

    def replay(self, crc_from: Offset) -> Iterator[StoredBatch]:
        """Read the batches behind the known ones and yield each; it ends at the first that is not sound.

        Batches that end above ``crc_from`` have their CRC checked.
        """
        for batch in self.scan(crc_from):
            self._note(batch.next_offset, batch.header.max_timestamp_ms, batch.header.size_bytes)
            yield batch

    def scan(self, crc_from: Offset) -> BatchScan:
        """A scan of the batches behind the known ones, up to the end of the file; it changes nothing here."""
        return BatchScan(self.file(), self.size_bytes, self.next_offset, end=self.file_bytes(), crc_from=crc_from)

    def note(self, batch: StoredBatch) -> None:
        """Count a batch of `scan` among the known ones."""
        assert batch.position == self.size_bytes, "batches are learned in their order"
        self._note(batch.next_offset, batch.header.max_timestamp_ms, batch.header.size_bytes)

    def file_bytes(self) -> int:
        """Size of the whole file, even if its end holds no sound batches."""
        return os.fstat(self.file().fd).st_size

    def modified_ms(self) -> int:
        """When the file was last written, in ms since 1970."""
        return os.stat(self.path).st_mtime_ns // 1_000_000

    def _forget(self) -> None:
        self._index, self._times = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        self._index_is_ours = True
        """Whether every index entry was made by this process, so that a mismatch is the log's fault."""
        self._since_index_bytes = 0
        self.size_bytes, self.next_offset = 0, self.base_offset
        self.max_timestamp_ms, self._max_timestamp_offset = -1, self.base_offset
        self._first_timestamp_ms: int | None = None

    def _rewind(self, below: Offset) -> bool:
        """Go back to the end of the last indexed batch that lies below ``below``; `replay` continues from there."""
        # Entries above it are of batches that are cut, or not trusted yet.
        entry = self._index.last_entry_below(below)
        batch = None if entry is None else self._batch_at(entry[1])
        if entry is None or batch is None or batch.next_offset != entry[0] + 1:
            self._forget()
            return False
        self._index.truncate(batch.end_position)
        self._times.truncate(batch.next_offset)
        self.size_bytes, self.next_offset = batch.end_position, batch.next_offset
        self.max_timestamp_ms, self._max_timestamp_offset = self._times.last_entry() or (-1, self.base_offset)
        self._since_index_bytes = batch.header.size_bytes
        if self._last_time_holds(batch):
            return True
        self._forget()
        return False

    def _last_time_holds(self, last: StoredBatch) -> bool:
        """Whether the batch that the time index names as newest up to ``last`` exists and has that timestamp."""
        if last.header.max_timestamp_ms > self.max_timestamp_ms:
            # A power failure may also have left the index file empty.
            return False
        if self.max_timestamp_ms < 0:
            return True
        offset = self._max_timestamp_offset
        batch = self._walk_to(offset, self._index.floor(offset))
        return batch is not None and batch.header.max_timestamp_ms == self.max_timestamp_ms

    def _note(self, next_offset: Offset, max_timestamp_ms: int, size_bytes: int) -> None:
        if self.size_bytes == 0:
            self._first_timestamp_ms = max_timestamp_ms
        last_offset = Offset(next_offset - 1)
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self._max_timestamp_offset = max_timestamp_ms, last_offset
        if self._since_index_bytes > self._index_interval_bytes:
            self._index.append(last_offset, self.size_bytes)
            self._times.maybe_append(self.max_timestamp_ms, self._max_timestamp_offset)
            self._since_index_bytes = 0
        self._since_index_bytes += size_bytes
        self.size_bytes += size_bytes
        self.next_offset = next_offset

    def first_timestamp_ms(self) -> int | None:
        """Maximal timestamp of the first batch, from which `roll` by time counts; ``None`` while empty."""
        if self._first_timestamp_ms is None and self.size_bytes:
            self._first_timestamp_ms = self._sound_batch_at(0).header.max_timestamp_ms
        return self._first_timestamp_ms

    def locate(self, offset: Offset) -> int:
        """Position of the batch that holds ``offset``, or the end of the segment.

        Raises:
            StorageDamaged: a batch that had to be read is damaged.
        """
        if offset >= self.next_offset:
            return self.size_bytes
        return self.batch_holding(offset).position

    def batch_holding(self, offset: Offset) -> StoredBatch:
        """The batch that holds ``offset``, which must lie within the segment.

        Raises:
            StorageDamaged: a batch that had to be read is damaged.
        """
        assert self.base_offset <= offset < self.next_offset, f"offset {offset} is not within {self}"
        batch = self._walk_to(offset, self._index.floor(offset))
        if batch is None:
            self._distrust_index()
            batch = self._walk_to(offset, self._index.floor(offset))
        if batch is None:
            raise StorageDamaged(self.path, 0, f"no batch holds offset {offset}")
        return batch

    def read(self, start: Offset, max_bytes: int, end: Offset, *, at_least_one: bool) -> Chunk:
        """Whole batches from the one that holds ``start``, none ending above ``end``, CRCs checked.

        Raises:
            StorageDamaged: a batch is damaged.
        """
        try:
            return self._read(start, max_bytes, end, at_least_one=at_least_one)
        except StorageDamaged:
            if self._index_is_ours:
                raise
            # Perhaps only the index file is wrong.
            self._distrust_index()
            return self._read(start, max_bytes, end, at_least_one=at_least_one)

    def _read(self, start: Offset, max_bytes: int, end: Offset, *, at_least_one: bool) -> Chunk:
        position, chunk, first = self._first_batch(start, max_bytes)
        if first.next_offset > end or (first.size_bytes > max_bytes and not at_least_one):
            return Chunk(b"", start)
        # A first batch is returned whole, or a consumer whose limit is smaller would never get past it (KIP-74).
        if first.size_bytes > len(chunk):
            chunk = self._pread(first.size_bytes, position)
        taken, end_of_taken = self._sound_batches(memoryview(chunk), position, first, end)
        if not taken:
            return Chunk(b"", start)
        return Chunk(chunk if taken == len(chunk) else chunk[:taken], end_of_taken)

    def _first_batch(self, start: Offset, max_bytes: int) -> tuple[int, bytes, BatchHeader]:
        """The position of the batch that holds ``start``, ``max_bytes`` from there on, and the batch's header."""
        wanted = max(max_bytes, HEADER_BYTES)
        guess = self._index.ceiling(start)
        if guess is not None and guess < self.size_bytes - HEADER_BYTES:
            # With batches above the index interval every batch is indexed, and the guess is right.
            chunk = self._pread(wanted, guess)
            header = parse_header(chunk)
            holds = header.base_offset <= start < header.next_offset
            if holds and header_fault(header, self.size_bytes - guess) is None:
                return guess, chunk, header
        position = self.batch_holding(start).position
        chunk = self._pread(wanted, position)
        return position, chunk, parse_header(chunk)

    def _sound_batches(self, view: memoryview, position: int, header: BatchHeader, end: Offset) -> tuple[int, Offset]:
        """The number of bytes in ``view`` that are whole batches ending at or below ``end``, and the last one's end.

        ``header`` is that of the first batch.
        """
        taken, expected = 0, header.base_offset
        while True:
            size = header.size_bytes
            if header.base_offset != expected:
                # The CRC does not cover the base offset.
                fault = f"base offset is {header.base_offset}, expected {expected}"
                raise StorageDamaged(self.path, position + taken, fault)
            if header.next_offset > end or taken + size > len(view):
                break
            if size < HEADER_BYTES or not crc_matches(view[taken : taken + size], header.crc):
                raise StorageDamaged(
                    self.path, position + taken, f"the CRC at offset {header.base_offset} does not match"
                )
            taken, expected = taken + size, header.next_offset
            if len(view) - taken < HEADER_BYTES:
                break
            header = parse_header(view, taken)
        return taken, expected

    def part_reaching(self, timestamp_ms: int) -> Part:
        """The rest of this segment, which holds its first batch at or after ``timestamp_ms``."""
        return Part(self.file(), self._position_before(timestamp_ms), self.size_bytes)

    def max_timestamp_before(self, end: Offset) -> int:
        """The largest timestamp of the batches that end at or below ``end``; -1 if none of them has one.

        Raises:
            StorageDamaged: a header that had to be read is damaged.
        """
        if end >= self.next_offset:
            return self.max_timestamp_ms
        indexed = self._index.last_entry_below(end)
        latest, position = (-1, 0) if indexed is None else (self._max_timestamp_upto(indexed[0]), indexed[1])
        for batch in self.batches(position):
            if batch.next_offset > end:
                break
            latest = max(latest, batch.header.max_timestamp_ms)
        return latest

    def _max_timestamp_upto(self, last_offset: Offset) -> int:
        """The largest timestamp up to an indexed batch that ends with ``last_offset``: it was noted with that batch."""
        entry = self._times.last_entry_upto(last_offset)
        if entry is None:
            return -1
        timestamp_ms, offset = entry
        if self.batch_holding(offset).header.max_timestamp_ms != timestamp_ms:
            self._distrust_index()
            timestamp_ms, _ = self._times.last_entry_upto(last_offset) or (-1, offset)
        return timestamp_ms

    def _position_before(self, timestamp_ms: int) -> int:
        """A batch border before which no batch reaches ``timestamp_ms``."""
        entry = self._times.floor(timestamp_ms)
        if entry is None:
            return 0
        batch = self.batch_holding(entry[1]) if entry[1] < self.next_offset else None
        if batch is not None and batch.header.max_timestamp_ms == entry[0]:
            return batch.position
        self._distrust_index()
        return 0

    def batches(self, from_position: int = 0) -> Iterator[StoredBatch]:
        """Headers of the batches from a batch border on.

        Raises:
            StorageDamaged: a header is damaged.
        """
        scan = self._headers_from(from_position)
        yield from scan
        if scan.fault is not None:
            raise StorageDamaged(self.path, scan.position, scan.fault)

    def _headers_from(self, position: int) -> BatchScan:
        return BatchScan(self.file(), position, None, end=self.size_bytes, crc_from=ALL_OFFSETS)

    def _walk_to(self, offset: Offset, position: int) -> StoredBatch | None:
        for batch in self._headers_from(position):
            if batch.header.base_offset > offset:
                return None
            if batch.next_offset > offset:
                return batch
        return None

    def _batch_at(self, position: int) -> StoredBatch | None:
        return next(iter(BatchScan(self.file(), position, None, end=self.file_bytes(), crc_from=ALL_OFFSETS)), None)

    def _sound_batch_at(self, position: int) -> StoredBatch:
        batch = self._batch_at(position)
        if batch is None:
            raise StorageDamaged(self.path, position, "no batch header is there")
        return batch

    def _distrust_index(self) -> None:
        """Discard the index, because it was wrong, and read all headers again.

        Raises:
            StorageDamaged: the log itself is wrong.
        """
        known_end, known_offset = self.size_bytes, self.next_offset
        self._forget()
        scan = BatchScan(self.file(), 0, self.base_offset, end=known_end, crc_from=ALL_OFFSETS)
        for batch in scan:
            self.note(batch)
        if self.next_offset != known_offset:
            raise StorageDamaged(self.path, scan.position, scan.fault or "batches are missing")

    def _pread(self, wanted: int, position: int) -> bytes:
        size = min(wanted, self.size_bytes - position)
        chunk = self.file().read(size, position)
        if len(chunk) < size:
            raise StorageDamaged(self.path, position + len(chunk), "the file is shorter than what was written")
        return chunk
