"""Where to start searching in a segment: a sparse index by offset, and one by timestamp.

Invariant: an index is only a hint, which is checked against the log when it is used; a wrong or missing file costs a
scan, but never gives a wrong record. The file forms are Kafka's (8 and 12 bytes per entry, big-endian).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from strandline.core.types import Offset
from strandline.storage.disk import replace_file

_TIME_ENTRY = struct.Struct(">qi")
_MAX_INT32 = (1 << 31) - 1
_INDEX_BYTES = 8


class OffsetIndex:
    """For some batches: the last offset (relative to the segment), and the position where the batch begins."""

    __slots__ = ("_base", "_offsets", "_positions")

    def __init__(self, base_offset: Offset) -> None:
        self._base = base_offset
        # Both strictly increasing, equally long.
        self._offsets: array[int] = array("I")
        self._positions: array[int] = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch that begins at ``position`` and ends with ``last_offset`` (inclusive)."""
        self._offsets.append(last_offset - self._base)
        self._positions.append(position)

    def floor(self, offset: int) -> int:
        """Position of a batch that begins at or before the one holding ``offset``."""
        at = bisect_right(self._offsets, offset - self._base) if offset >= self._base else 0
        return self._positions[at - 1] if at else 0

    def ceiling(self, offset: int) -> int | None:
        """Position of the first indexed batch that ends at or after ``offset``; often the batch that holds it."""
        at = bisect_left(self._offsets, max(offset - self._base, 0))
        return self._positions[at] if at < len(self._positions) else None

    def last_entry_below(self, offset: int) -> tuple[Offset, int] | None:
        """Last offset (inclusive) and position of the last indexed batch that ends at or below ``offset``."""
        at = bisect_left(self._offsets, offset - self._base) if offset > self._base else 0
        return (Offset(self._base + self._offsets[at - 1]), self._positions[at - 1]) if at else None

    def truncate(self, position: int) -> None:
        """Forget batches that begin at or behind ``position``."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:], self._positions[keep:]

    def save(self, path: Path) -> None:
        """Write the file, not durably: a lost index is rebuilt. Raises `StorageFailed`."""
        rows = array("I", bytes(_INDEX_BYTES * len(self._offsets)))
        rows[0::2], rows[1::2] = self._offsets, self._positions
        if sys.byteorder == "little":
            rows.byteswap()
        replace_file(path, rows.tobytes(), durable=False)

    @classmethod
    def load(cls, path: Path, base_offset: Offset, size_bytes: int) -> OffsetIndex | None:
        """Read the file, or ``None`` if it is missing or cannot belong to a segment of ``size_bytes``."""
        content = _read(path)
        if content is None or len(content) % _INDEX_BYTES:
            return None
        rows: array[int] = array("I", content)
        if sys.byteorder == "little":
            rows.byteswap()
        index = cls(base_offset)
        index._offsets, index._positions = rows[0::2], rows[1::2]
        # The searches rely on the order, which a torn file may lack.
        if not (_increases(index._offsets) and _increases(index._positions)):
            return None
        if rows and (rows[-1] >= size_bytes or rows[-2] > _MAX_INT32):
            return None
        return index


class TimeIndex:
    """For some batches: the highest timestamp so far, and the last offset of the batch that has it."""

    __slots__ = ("_base", "_offsets", "_times_ms")

    def __init__(self, base_offset: Offset) -> None:
        self._base = base_offset
        # Both strictly increasing, equally long.
        self._times_ms: array[int] = array("q")
        self._offsets: array[int] = array("I")

    def __len__(self) -> int:
        return len(self._times_ms)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if it is later in both fields than the last one (Kafka: maybeAppend)."""
        relative = offset - self._base
        if timestamp_ms < 0 or (
            self._times_ms and (timestamp_ms <= self._times_ms[-1] or relative <= self._offsets[-1])
        ):
            return
        self._times_ms.append(timestamp_ms)
        self._offsets.append(relative)

    def floor(self, timestamp_ms: int) -> tuple[int, Offset] | None:
        """The last entry below ``timestamp_ms``: no batch up to its offset (inclusive) reaches that time."""
        at = bisect_left(self._times_ms, timestamp_ms)
        return (self._times_ms[at - 1], Offset(self._base + self._offsets[at - 1])) if at else None

    def last_entry_upto(self, offset: int) -> tuple[int, Offset] | None:
        """The last entry at or below ``offset``."""
        at = bisect_right(self._offsets, offset - self._base) if offset >= self._base else 0
        return (self._times_ms[at - 1], Offset(self._base + self._offsets[at - 1])) if at else None

    def last_entry(self) -> tuple[int, Offset] | None:
        """Timestamp and offset of the last entry."""
        if not self._times_ms:
            return None
        return self._times_ms[-1], Offset(self._base + self._offsets[-1])

    def truncate(self, offset: int) -> None:
        """Forget entries at or behind ``offset``."""
        keep = bisect_left(self._offsets, max(offset - self._base, 0))
        del self._offsets[keep:], self._times_ms[keep:]

    def save(self, path: Path) -> None:
        """Write the file, not durably: a lost index is rebuilt. Raises `StorageFailed`."""
        rows = zip(self._times_ms, self._offsets, strict=True)
        replace_file(path, b"".join(_TIME_ENTRY.pack(*row) for row in rows), durable=False)

    @classmethod
    def load(cls, path: Path, base_offset: Offset) -> TimeIndex | None:
        """Read the file, or ``None`` if it is missing or not in order."""
        content = _read(path)
        if content is None or len(content) % _TIME_ENTRY.size:
            return None
        index = cls(base_offset)
        for timestamp_ms, offset in _TIME_ENTRY.iter_unpack(content):
            if timestamp_ms < 0 or offset < 0:
                return None
            index._times_ms.append(timestamp_ms)
            index._offsets.append(offset)
        return index if _increases(index._times_ms) and _increases(index._offsets) else None


def _increases(values: array[int]) -> bool:
    return all(map(int.__lt__, values, values[1:]))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
