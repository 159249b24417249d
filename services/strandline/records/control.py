"""The control batch that ends a transaction, byte by byte: Kafka's marker, one record that says COMMIT or ABORT.

Invariant: `marker_of` reads what `encode_marker` wrote, and refuses every other control batch, because a log that holds
one cannot be folded (X12). Sources: KIP-98; Kafka's EndTransactionMarker and ControlRecordType.
"""

from __future__ import annotations

import struct

import crc32c

from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import BatchHeader, Marker
from strandline.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    Batch,
    Buffer,
    parse_header,
)

_HEAD = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
"""The fields that the CRC covers, from the attributes on."""
_RECORD = struct.Struct(">BBBBBhhBhiB")
"""Length, attributes, two deltas, length of the key, its version and type, length of the value, its version, epoch of
the coordinator, number of headers. Each varint here is one byte."""
_ABORT, _COMMIT = 0, 1
_LENGTH, _KEY_LENGTH, _VALUE_LENGTH = 32, 8, 12
"""16, 4 and 6 bytes, as zigzag varints."""
MARKER_BYTES = HEADER_BYTES + _RECORD.size


def encode_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> Batch:
    """The batch that ends the transaction of a producer, not yet stamped with an offset and a leader epoch.

    ``timestamp_ms``: wall-clock time, milliseconds since 1970.
    """
    kind = _COMMIT if marker.committed else _ABORT
    record = _RECORD.pack(
        _LENGTH, 0, 0, 0, _KEY_LENGTH, 0, kind, _VALUE_LENGTH, 0, marker.coordinator_epoch, 0
    )  # fmt: skip
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    covered = _COVERED.pack(attributes, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, -1, 1) + record
    content = _HEAD.pack(0, MARKER_BYTES - LENGTH_PREFIX_BYTES, -1, MAGIC, crc32c.crc32c(covered)) + covered
    view = memoryview(content)
    return Batch(parse_header(view)._replace(marker=marker), view)


def marker_of(batch: Buffer) -> Marker:
    """What one whole control batch says; its CRC was checked before.

    Raises:
        Refused: CORRUPT_MESSAGE, it is no marker of a transaction.
    """
    if len(batch) != MARKER_BYTES:
        raise _unknown(f"it is {len(batch)} bytes long, a marker is {MARKER_BYTES}")
    length, attributes, time_delta, offset_delta, key, key_version, kind, value, version, coordinator_epoch, headers = (
        _RECORD.unpack_from(batch, HEADER_BYTES)
    )
    fixed = (length, attributes, time_delta, offset_delta, key, key_version, value, version, headers)
    if fixed != (_LENGTH, 0, 0, 0, _KEY_LENGTH, 0, _VALUE_LENGTH, 0, 0) or kind not in (_ABORT, _COMMIT):
        raise _unknown(f"its record has type {kind}, and is not laid out as a marker's")
    return Marker(kind == _COMMIT, coordinator_epoch)


def with_marker(header: BatchHeader, batch: Buffer) -> BatchHeader:
    """The header with what its record says if it is a control batch's; ``batch`` is one whole batch.

    Raises:
        Refused: CORRUPT_MESSAGE, as `marker_of`; no producer is named whose transaction ends.
    """
    if not header.attributes & CONTROL_BIT:
        return header
    if header.producer is None:
        raise _unknown("it names no producer")
    return header._replace(marker=marker_of(batch))


def _unknown(why: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"a control batch is no marker of a transaction: {why}")
