"""Snapshots of a log's producer state, in files next to the log, so that recovery need not read far (M61, X12).

Invariant: a snapshot is used only if its CRC matches and it is at or below the LEO; otherwise the state is computed
from the batches themselves, which always gives the same result.

Format 2 also has the state of transactions. A log without any is written in format 1, which earlier releases can read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import crc32c

from strandline.core.types import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    EndedTransaction,
    LastMarker,
    Offset,
    OpenTransaction,
    ProducerBatch,
    TransactionState,
)
from strandline.storage.disk import remove, replace_file
from strandline.storage.layout import has_offset_name

_SUFFIX = ".snapshot"
# The newest one may be torn, because it is not synced, or lie above the end of a log that was cut.
_KEPT = 2
_HEAD = struct.Struct(">4sIqI")
"""Magic, CRC, offset, number of batches; the CRC covers the rest of the file, then offset and number."""
_COUNTED = struct.Struct(">qI")
_MAGIC_1, _MAGIC_2 = b"SLP1", b"SLP2"
_ROW = struct.Struct(">qhiiqqq")
_COUNTS = struct.Struct(">IIII")
"""After the batches in format 2: the number of rows of each part of the state, in order."""
_OPEN, _ENDED, _ABORTED, _MARKER = (struct.Struct(form) for form in (">qq", ">qq", ">qqqq", ">qhiqq"))


class Snapshot(NamedTuple):
    """The producer state below ``offset``."""

    offset: Offset
    batches: list[ProducerBatch]
    transactions: TransactionState


NO_SNAPSHOT = Snapshot(Offset(0), [], NO_TRANSACTIONS)


def save_snapshot(
    directory: Path,
    offset: Offset,
    rows: Iterable[ProducerBatch],
    transactions: TransactionState = NO_TRANSACTIONS,
    *,
    durable: bool = False,
) -> None:
    """Write the state as of ``offset`` (exclusive) and drop all but the newest two snapshots.

    Raises:
        StorageFailed: the disk failed.
    """
    begin_with_snapshot(directory, offset, rows, transactions, durable=durable)
    for path in snapshot_paths(directory)[:-_KEPT]:
        remove(path)


def begin_with_snapshot(
    directory: Path,
    offset: Offset,
    rows: Iterable[ProducerBatch],
    transactions: TransactionState = NO_TRANSACTIONS,
    *,
    durable: bool,
) -> None:
    """Write the state as of ``offset`` and keep all other snapshots, until the log begins there.

    Raises:
        StorageFailed: the disk failed.
    """
    packed = [_ROW.pack(*row) for row in rows]
    is_plain = transactions == NO_TRANSACTIONS
    body = b"".join(packed) + (b"" if is_plain else _packed(transactions))
    crc = crc32c.crc32c(body + _COUNTED.pack(offset, len(packed)))
    head = _HEAD.pack(_MAGIC_1 if is_plain else _MAGIC_2, crc, offset, len(packed))
    replace_file(directory / f"{offset:020}{_SUFFIX}", head + body, durable=durable)


def newest_snapshot(directory: Path, upto: Offset) -> Snapshot:
    """The newest sound snapshot at or below ``upto``; if there is none, an empty one at 0."""
    for path in reversed(snapshot_paths(directory)):
        found = _read(path) if int(path.stem) <= upto else None
        if found is not None:
            return found
    return NO_SNAPSHOT


def drop_snapshots_above(directory: Path, offset: Offset) -> None:
    """Remove snapshots of a log that was truncated to ``offset``: they cover records that are gone.

    Raises:
        StorageFailed: the disk failed.
    """
    for path in snapshot_paths(directory):
        if int(path.stem) > offset:
            remove(path)


def drop_snapshots_except(directory: Path, offset: Offset | None) -> None:
    """Remove the snapshots of a log that began again, except the one that it began with. Raises `StorageFailed`."""
    for path in snapshot_paths(directory):
        if offset is None or int(path.stem) != offset:
            remove(path)


def snapshot_paths(directory: Path) -> list[Path]:
    """The snapshot files of a log, oldest first."""
    return sorted(path for path in directory.glob(f"*{_SUFFIX}") if has_offset_name(path))


def _read(path: Path) -> Snapshot | None:
    content = path.read_bytes()
    if len(content) < _HEAD.size:
        return None
    magic, crc, offset, count = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    batches, rest = body[: count * _ROW.size], body[count * _ROW.size :]
    # Under another name it would pass for the state at another offset.
    if magic not in (_MAGIC_1, _MAGIC_2) or offset != int(path.stem) or len(batches) != count * _ROW.size:
        return None
    if crc32c.crc32c(body + _COUNTED.pack(offset, count)) != crc:
        return None
    transactions = _unpacked(rest) if magic == _MAGIC_2 else None if rest else NO_TRANSACTIONS
    if transactions is None:
        return None
    return Snapshot(Offset(offset), [ProducerBatch(*row) for row in _ROW.iter_unpack(batches)], transactions)


def _packed(state: TransactionState) -> bytes:
    return b"".join(
        (
            _COUNTS.pack(*map(len, state)),
            *(_OPEN.pack(*row) for row in state.open),
            *(_ENDED.pack(*row) for row in state.ended),
            *(_ABORTED.pack(*row) for row in state.aborted),
            *(_MARKER.pack(*row) for row in state.markers),
        )
    )


def _unpacked(content: bytes) -> TransactionState | None:
    """The state that `_packed` wrote; None if the counts do not fit the bytes."""
    if len(content) < _COUNTS.size:
        return None
    counts = _COUNTS.unpack_from(content)
    parts: list[bytes] = []
    position = _COUNTS.size
    for form, count in zip((_OPEN, _ENDED, _ABORTED, _MARKER), counts, strict=True):
        parts.append(content[position : position + form.size * count])
        position += form.size * count
    if position != len(content):
        return None
    return TransactionState(
        tuple(OpenTransaction(*row) for row in _OPEN.iter_unpack(parts[0])),
        tuple(EndedTransaction(*row) for row in _ENDED.iter_unpack(parts[1])),
        tuple(AbortedTransaction(*row) for row in _ABORTED.iter_unpack(parts[2])),
        tuple(LastMarker(*row) for row in _MARKER.iter_unpack(parts[3])),
    )
