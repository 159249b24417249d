"""Encoding records into a batch and decoding them again, for clients and tools; nodes never do either.

Invariant: arbitrary bytes decode to records or a `Refused`, nothing else; decoding what was encoded gives
the same keys, values, headers and timestamps, at dense offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

import crc32c
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import BatchHeader, Marker, Offset, ProducerStamp
from strandline.records import batch as records_batch
from strandline.records.builder import BatchBuilder, Headers as Headers
from strandline.records.compression import MAX_EXPANDED_BYTES, Compression, expand

_LENGTH_AT = 8
_ATTRIBUTES_AT = 21
_NO_LIMIT_BYTES = 1 << 31
_new = tuple.__new__
_UNPARSABLE = (CorruptRecordException, ValueError, IndexError, OverflowError)
"""What the parser of records raises over damaged ones."""


class Record(NamedTuple):
    """One record as read from a log."""

    offset: Offset
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Row = tuple[Offset, int | None, bytes | None, bytes | None, Headers]
"""The fields of a `Record`, in their order."""


class NewRecord(NamedTuple):
    """One record as given to a producer."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    """Wall-clock time, milliseconds since 1970, >= 0."""
    headers: Headers = ()


def encode_batch(
    records: Iterable[NewRecord],
    *,
    compression: Compression = Compression.NONE,
    producer_id: int | None = None,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    max_bytes: int = records_batch.MAX_BATCH_BYTES,
) -> bytes:
    """All records in one batch, as `BatchBuilder` builds it.

    Raises:
        Refused: MESSAGE_TOO_LARGE, they do not fit; INVALID_RECORD, there are none; INVALID_TIMESTAMP.
    """
    builder = BatchBuilder(compression=compression, max_bytes=max_bytes)
    for key, value, timestamp_ms, headers in records:
        if not builder.try_append(key, value, timestamp_ms, headers):
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE, f"records need more than {max_bytes} bytes; send several batches"
            )
    producer = ProducerStamp(-1 if producer_id is None else producer_id, producer_epoch, base_sequence)
    return b"".join(records_batch.sealed(builder.build(), producer))


def decode_batch(batch: records_batch.Buffer, *, max_expanded_bytes: int = MAX_EXPANDED_BYTES) -> list[Record]:
    """The records of exactly one batch, CRC checked; a control batch has none for users.

    Raises:
        Refused: CORRUPT_MESSAGE, not a sound batch; MESSAGE_TOO_LARGE, it expands too far; INVALID_RECORD,
            an unknown codec.
    """
    return _records(decode_rows(batch, max_expanded_bytes=max_expanded_bytes))


def decode_rows(batch: records_batch.Buffer, *, max_expanded_bytes: int = MAX_EXPANDED_BYTES) -> list[Row]:
    """As `decode_batch`, for a reader that makes something else of them: an object less for each record."""
    opened = _opened(batch, max_expanded_bytes)
    return _parse(*opened) if opened else []


def decode_trusted_batch(header: BatchHeader, batch: records_batch.Buffer) -> list[Record]:
    """The records of a batch, control or not, whose header was read and whose CRC was checked by the caller.

    Raises:
        Refused: as `decode_batch`, but for the CRC.
    """
    return _records(_parse(*_expanded(memoryview(batch), header, MAX_EXPANDED_BYTES)))


def iterate_batch(batch: records_batch.Buffer, *, max_expanded_bytes: int = MAX_EXPANDED_BYTES) -> Iterator[Record]:
    """As `decode_batch`, one record after another: for a reader that may stop early.

    Raises:
        Refused: as `decode_batch`; records before a damaged one are given.
    """
    opened = _opened(batch, max_expanded_bytes)
    if opened is None:
        return
    plain, header = opened
    try:
        for expected, row in enumerate(DefaultRecordBatch(plain), header.base_offset):
            if row.offset != expected:
                raise _misplaced(row.offset, expected, header)
            timestamp_ms = row.timestamp if row.timestamp >= 0 else None
            yield Record(Offset(expected), timestamp_ms, row.key, row.value, row.headers)
    except _UNPARSABLE as error:
        raise _unparsable(error) from error


def _check(view: memoryview, header: BatchHeader) -> None:
    if header.magic != records_batch.MAGIC:
        raise _corrupt(f"magic {header.magic} must be {records_batch.MAGIC}")
    if not records_batch.crc_matches(view, header.crc):
        raise _corrupt(f"crc {header.crc:#010x} is not the CRC-32C of the batch")
    if not records_batch.is_dense(header):
        raise _corrupt(f"{header.record_count} records and last offset delta {header.last_offset_delta} disagree")
    if header.base_offset < 0:
        raise _corrupt(f"base offset {header.base_offset} is negative")


def _opened(batch: records_batch.Buffer, max_expanded_bytes: int) -> tuple[records_batch.Buffer, BatchHeader] | None:
    """A batch that was checked, its records not compressed any more; None for a control batch."""
    view = memoryview(batch)
    header = _checked(view)
    return None if header.attributes & records_batch.CONTROL_BIT else _expanded(view, header, max_expanded_bytes)


def _checked(view: memoryview) -> BatchHeader:
    """The header of exactly one sound batch."""
    size = records_batch.batch_size_bytes(view, 0, _NO_LIMIT_BYTES)
    header = records_batch.parse_header(view)
    _check(view[:size], header)
    if size != len(view):
        raise _corrupt(f"{len(view) - size} bytes follow the batch; cut them off")
    return header


def _expanded(
    view: memoryview, header: BatchHeader, max_expanded_bytes: int
) -> tuple[records_batch.Buffer, BatchHeader]:
    if codec := records_batch.codec_of(header):
        body = expand(codec, view[records_batch.HEADER_BYTES :], max_expanded_bytes)
        return _rebuilt(view, Compression.NONE, body), header
    return view, header


def _records(rows: list[Row]) -> list[Record]:
    # The class's own `__new__` would cost as much as the rest of the record.
    return list(map(_new, repeat(Record), rows))


def _parse(plain: records_batch.Buffer, header: BatchHeader) -> list[Row]:
    try:
        rows = [
            (row.offset, at if (at := row.timestamp) >= 0 else None, row.key, row.value, row.headers)
            for row in DefaultRecordBatch(plain)
        ]
    except _UNPARSABLE as error:
        raise _unparsable(error) from error
    for expected, row in enumerate(rows, header.base_offset):
        if row[0] != expected:
            raise _misplaced(row[0], expected, header)
    return rows


def _unparsable(error: Exception) -> Refused:
    return _corrupt(f"records cannot be parsed: {error}")


def _misplaced(found: int, expected: int, header: BatchHeader) -> Refused:
    return _corrupt(f"record {expected - header.base_offset} has offset {found}, expected {expected}")


def _rebuilt(header: records_batch.Buffer, codec: Compression, body: bytes) -> bytearray:
    """A batch with other record bytes, whose CRC is not computed."""
    batch = bytearray(header[: records_batch.HEADER_BYTES])
    batch += body
    (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES_AT)
    struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - records_batch.LENGTH_PREFIX_BYTES)
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, (attributes & ~records_batch.COMPRESSION_MASK) | codec)
    return batch


def _corrupt(message: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, message)


# ---- control
# The control batch that ends a transaction, byte by byte: Kafka's marker, one record that says COMMIT or ABORT.
#
# Invariant: `marker_of` reads what `encode_marker` wrote, and refuses every other control batch, because a log that
# holds one cannot be folded (X12). Sources: KIP-98; Kafka's EndTransactionMarker and ControlRecordType.

_HEAD = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
"""The fields that the CRC covers, from the attributes on."""
_RECORD = struct.Struct(">BBBBBhhBhiB")
"""Length, attributes, two deltas, length of the key, its version and type, length of the value, its version, epoch of
the coordinator, number of headers. Each varint here is one byte."""
_ABORT, _COMMIT = 0, 1
_LENGTH, _KEY_LENGTH, _VALUE_LENGTH = 32, 8, 12
"""16, 4 and 6 bytes, as zigzag varints."""
MARKER_BYTES = records_batch.HEADER_BYTES + _RECORD.size


def encode_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> records_batch.Batch:
    """The batch that ends the transaction of a producer, not yet stamped with an offset and a leader epoch.

    ``timestamp_ms``: wall-clock time, milliseconds since 1970.
    """
    kind = _COMMIT if marker.committed else _ABORT
    record = _RECORD.pack(
        _LENGTH, 0, 0, 0, _KEY_LENGTH, 0, kind, _VALUE_LENGTH, 0, marker.coordinator_epoch, 0
    )  # fmt: skip
    attributes = records_batch.TRANSACTIONAL_BIT | records_batch.CONTROL_BIT
    covered = _COVERED.pack(attributes, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, -1, 1) + record
    content = (
        _HEAD.pack(0, MARKER_BYTES - records_batch.LENGTH_PREFIX_BYTES, -1, records_batch.MAGIC, crc32c.crc32c(covered))
        + covered
    )
    view = memoryview(content)
    return records_batch.Batch(records_batch.parse_header(view)._replace(marker=marker), view)


def marker_of(batch: records_batch.Buffer) -> Marker:
    """What one whole control batch says; its CRC was checked before.

    Raises:
        Refused: CORRUPT_MESSAGE, it is not a marker of a transaction.
    """
    if len(batch) != MARKER_BYTES:
        raise _unknown(f"it is {len(batch)} bytes long, a marker is {MARKER_BYTES}")
    length, attributes, time_delta, offset_delta, key, key_version, kind, value, version, coordinator_epoch, headers = (
        _RECORD.unpack_from(batch, records_batch.HEADER_BYTES)
    )
    fixed = (length, attributes, time_delta, offset_delta, key, key_version, value, version, headers)
    if fixed != (_LENGTH, 0, 0, 0, _KEY_LENGTH, 0, _VALUE_LENGTH, 0, 0) or kind not in (_ABORT, _COMMIT):
        raise _unknown(f"its record has type {kind}, and is not laid out as a marker's")
    return Marker(kind == _COMMIT, coordinator_epoch)


def with_marker(header: BatchHeader, batch: records_batch.Buffer) -> BatchHeader:
    """The header with what its record says if it is a control batch's; ``batch`` is one whole batch.

    Raises:
        Refused: CORRUPT_MESSAGE, as `marker_of`; no producer is named whose transaction ends.
    """
    if not header.attributes & records_batch.CONTROL_BIT:
        return header
    if header.producer is None:
        raise _unknown("it names no producer")
    return header._replace(marker=marker_of(batch))


def _unknown(why: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"a control batch is not a marker of a transaction: {why}")
