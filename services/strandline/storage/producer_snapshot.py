"""The producer state of a log as kept in a file beside it, so that recovery need not read far (M61).

Invariant: a snapshot is believed only if its CRC holds and it lies at or below the LEO; otherwise the
ledger is folded from the batches themselves, which always gives the same answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import crc32c

from strandline.core.types import Offset, ProducerBatch
from strandline.storage.disk import remove, replace_file
from strandline.storage.layout import has_offset_name

_SUFFIX = ".snapshot"
_KEPT = 2
_HEAD = struct.Struct(">4sIqI")
_MAGIC = b"SLP1"
_ROW = struct.Struct(">qhiiqqq")


def save_snapshot(directory: Path, offset: Offset, rows: Iterable[ProducerBatch], *, durable: bool = False) -> None:
    """Write the state as of ``offset`` (exclusive) and drop all but the newest two snapshots.

    Raises:
        StorageFailed: the disk failed.
    """
    begin_with_snapshot(directory, offset, rows, durable=durable)
    for path in snapshot_paths(directory)[:-_KEPT]:
        remove(path)


def begin_with_snapshot(directory: Path, offset: Offset, rows: Iterable[ProducerBatch], *, durable: bool) -> None:
    """Write the state as of ``offset`` and keep all others, until the log begins there.

    Raises:
        StorageFailed: the disk failed.
    """
    body = b"".join(_ROW.pack(*row) for row in rows)
    count = len(body) // _ROW.size
    head = _HEAD.pack(_MAGIC, crc32c.crc32c(body + struct.pack(">qI", offset, count)), offset, count)
    replace_file(directory / f"{offset:020}{_SUFFIX}", head + body, durable=durable)


def newest_snapshot(directory: Path, upto: Offset) -> tuple[Offset, list[ProducerBatch]]:
    """Offset and rows of the newest sound snapshot at or below ``upto``; (0, []) without one."""
    for path in reversed(snapshot_paths(directory)):
        rows = _read(path) if int(path.stem) <= upto else None
        if rows is not None:
            return Offset(int(path.stem)), rows
    return Offset(0), []


def drop_snapshots_above(directory: Path, offset: Offset) -> None:
    """Remove snapshots of a log that was cut to ``offset``: they speak of records that are gone.

    Raises:
        StorageFailed: the disk failed.
    """
    for path in snapshot_paths(directory):
        if int(path.stem) > offset:
            remove(path)


def drop_snapshots_except(directory: Path, offset: Offset | None) -> None:
    """Remove the snapshots of a log that began again, but for the one that it began with.

    Raises:
        StorageFailed: the disk failed.
    """
    for path in snapshot_paths(directory):
        if offset is None or int(path.stem) != offset:
            remove(path)


def snapshot_paths(directory: Path) -> list[Path]:
    """The snapshot files of a log, oldest first."""
    return sorted(path for path in directory.glob(f"*{_SUFFIX}") if has_offset_name(path))


def _read(path: Path) -> list[ProducerBatch] | None:
    content = path.read_bytes()
    if len(content) < _HEAD.size:
        return None
    magic, crc, offset, count = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    if magic != _MAGIC or offset != int(path.stem) or len(body) != count * _ROW.size:
        return None
    if crc32c.crc32c(body + struct.pack(">qI", offset, count)) != crc:
        return None
    return [ProducerBatch(*row) for row in _ROW.iter_unpack(body)]
