"""The record batch, byte by byte: Kafka's batch v2 header and the rules a batch must meet.

Invariant: a batch that passed `check_batch` is stored and served unchanged except for its first 16 bytes
(base offset, length, leader epoch), which lie outside the CRC; records stay opaque here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import crc32c

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import (
    CONTROL_BIT as CONTROL_BIT,
    TRANSACTIONAL_BIT as TRANSACTIONAL_BIT,
    BatchHeader,
    LeaderEpoch,
    Offset,
    ProducerStamp,
)

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
"""Size of the fixed header; the records follow it."""
STAMP_BYTES = 16
"""Base offset (8), length (4), leader epoch (4): the part a leader writes."""
LENGTH_PREFIX_BYTES = 12
"""Base offset and length field; the length counts what follows them."""
MAX_BATCH_BYTES = 1_048_588
"""Kafka's ``message.max.bytes``: 1 MiB and the 12 bytes of the length prefix."""
LEAST_RECORD_BYTES = 7
"""A record of v2 without key, value and headers: its length, attributes, two deltas, two absent lengths, a count."""
UNPACKED_RECORDS = 1 << 17
"""Most records of one batch that a node unpacks for a caller; only a compressed batch can hold more."""
MAGIC = 2

COMPRESSION_MASK = 0x07
_MAX_COMPRESSION = 4

_HEADER = struct.Struct(">qiibIhiqqqhii")
_STAMP = struct.Struct(">qii")
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_ATTRIBUTES_LOW_AT = 22
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CRC_FROM = 21
_new = tuple.__new__


def codec_of(header: BatchHeader) -> int:
    """Kafka's codec number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    return header.attributes & COMPRESSION_MASK


class Batch(NamedTuple):
    """A header and the bytes it came from (a view, nothing is copied)."""

    header: BatchHeader
    view: memoryview


def _refuse(code: ErrorCode, message: str) -> Refused:
    return Refused(code, message, Outcome.NOT_APPENDED)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``, unchecked; the wire's -1 becomes ``None``.

    Raises:
        Refused: CORRUPT_MESSAGE, fewer than 61 bytes are left.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise _refuse(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch header needs {HEADER_BYTES} bytes, {len(buffer) - position} are left; send whole batches",
        )
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _HEADER.unpack_from(buffer, position)
    # Headers are parsed by the thousand in scans, and `tuple.__new__` takes two thirds of the time of the classes' own.
    producer = None if producer_id == -1 else _new(ProducerStamp, (producer_id, producer_epoch, base_sequence))
    return _new(
        BatchHeader,
        (
            base_offset,
            leader_epoch if leader_epoch >= 0 else None,
            record_count,
            length + LENGTH_PREFIX_BYTES,
            max_timestamp_ms,
            producer,
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            crc,
            magic,
            None,
        ),
    )


def batch_size_bytes(buffer: Buffer, position: int, max_batch_bytes: int = MAX_BATCH_BYTES) -> int:
    """Size of the batch at ``position``, from its length prefix alone, so that nothing is allocated for a lie.

    Raises:
        Refused: MESSAGE_TOO_LARGE above ``max_batch_bytes``; CORRUPT_MESSAGE if the prefix is cut off, is
            smaller than a header, or points beyond the buffer.
    """
    left = len(buffer) - position
    if left < LENGTH_PREFIX_BYTES:
        raise _refuse(
            ErrorCode.CORRUPT_MESSAGE,
            f"length prefix needs {LENGTH_PREFIX_BYTES} bytes, {left} are left; remove the trailing bytes",
        )
    size = int(_LENGTH.unpack_from(buffer, position + _LENGTH_AT)[0]) + LENGTH_PREFIX_BYTES
    if size > max_batch_bytes:
        raise _refuse(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch size {size} is above the limit of {max_batch_bytes} bytes; send smaller batches",
        )
    if size < HEADER_BYTES:
        raise _refuse(
            ErrorCode.CORRUPT_MESSAGE,
            f"length prefix gives a batch of {size} bytes, less than the header's {HEADER_BYTES}; encode it again",
        )
    if size > left:
        raise _refuse(
            ErrorCode.CORRUPT_MESSAGE,
            f"length prefix gives a batch of {size} bytes, but {left} are left; send whole batches",
        )
    return size


def split_batches(payload: Buffer, max_batch_bytes: int = MAX_BATCH_BYTES) -> list[Batch]:
    """Cut a payload into its batches by their length prefixes, without looking into them.

    Raises:
        Refused: as `batch_size_bytes`.
    """
    view = memoryview(payload)
    batches: list[Batch] = []
    position = 0
    while position < len(view):
        size = batch_size_bytes(view, position, max_batch_bytes)
        batches.append(Batch(parse_header(view, position), view[position : position + size]))
        position += size
    return batches


def crc_matches(view: memoryview, expected: int) -> bool:
    """Whether the CRC-32C over everything after the CRC field is ``expected``; ``view`` is one whole batch."""
    return int(crc32c.crc32c(view[_CRC_FROM:])) == expected


def check_batch(view: memoryview) -> BatchHeader:
    """Check one whole batch from a producer; ``view`` was cut by its length prefix.

    Raises:
        Refused: CORRUPT_MESSAGE for magic or CRC; INVALID_RECORD for counts, control bit, codec, producer fields, or
            a transactional bit without a producer; INVALID_TIMESTAMP (Kafka: LogValidator). How many records a
            compressed batch can hold is not known here.
    """
    header = parse_header(view)
    _check_integrity(view, header)
    _check_counts(header)
    if codec_of(header) == 0 and (refusal := count_refusal(header, len(view) - HEADER_BYTES)) is not None:
        raise Refused.of(refusal)
    _check_attributes(header)
    _check_producer(header)
    if header.max_timestamp_ms < -1 or header.base_timestamp_ms < -1:
        raise _refuse(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamps {header.base_timestamp_ms}..{header.max_timestamp_ms} ms must be -1 (none) or not negative",
        )
    return header


def check_one_batch(payload: Buffer) -> BatchHeader:
    """The header of a payload that is exactly one valid batch from a producer.

    Raises:
        Refused: as `check_batch`; INVALID_RECORD for none or more than one.
    """
    view = memoryview(payload)
    if not view:
        raise _refuse(ErrorCode.INVALID_RECORD, "records hold no batch; send one")
    if batch_size_bytes(view, 0) != len(view):
        raise _refuse(ErrorCode.INVALID_RECORD, "records hold more than one batch; send one per partition")
    return check_batch(view)


def check_replicated(
    payload: Buffer, expected_offset: int | None = None, last_epoch: int = -1, max_batch_bytes: int = 1 << 31
) -> list[Batch]:
    """Check what a follower fetched: CRCs, offsets dense from ``expected_offset``, epochs never falling.

    Without ``expected_offset`` the first batch may begin anywhere.

    No size limit of its own: the leader's limit may have been higher when the batch was accepted.

    Raises:
        Refused: CORRUPT_MESSAGE for a batch that is damaged, or breaks density or the order of epochs (M4).
    """
    batches = split_batches(payload, max_batch_bytes)
    for header, view in batches:
        _check_integrity(view, header)
        if not is_dense(header):
            raise _refuse(ErrorCode.CORRUPT_MESSAGE, f"batch at {header.base_offset} has inconsistent counts")
        if expected_offset is not None and header.base_offset != expected_offset:
            raise _refuse(
                ErrorCode.CORRUPT_MESSAGE,
                f"base offset {header.base_offset} must be {expected_offset}; fetch again from the log end",
            )
        if header.leader_epoch is None or header.leader_epoch < last_epoch:
            raise _refuse(
                ErrorCode.CORRUPT_MESSAGE,
                f"leader epoch {header.leader_epoch} at {header.base_offset} is absent or below {max(last_epoch, 0)}",
            )
        expected_offset, last_epoch = header.next_offset, header.leader_epoch
    return batches


def is_dense(header: BatchHeader) -> bool:
    """Whether the batch has at least one record and one offset per record."""
    return header.record_count > 0 and header.last_offset_delta == header.record_count - 1


def stamp_prefix(size_bytes: int, base_offset: Offset | int, leader_epoch: LeaderEpoch | int) -> bytes:
    """The first 16 bytes of a batch with its place in the log; write them before ``view[16:]``, copying nothing."""
    return _STAMP.pack(base_offset, size_bytes - LENGTH_PREFIX_BYTES, leader_epoch)


def stamp(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Write base offset and leader epoch into the batch at ``position``; the CRC does not cover them."""
    (length,) = _LENGTH.unpack_from(buffer, position + _LENGTH_AT)
    _STAMP.pack_into(buffer, position, base_offset, length, leader_epoch)


def header_without_crc(
    size_bytes: int, record_count: int, *, attributes: int, base_timestamp_ms: int, max_timestamp_ms: int
) -> bytes:
    """The header of a batch of so many bytes that no leader has stamped and no producer has numbered."""
    counts = size_bytes - LENGTH_PREFIX_BYTES, -1, MAGIC, 0, attributes, record_count - 1
    return _HEADER.pack(0, *counts, base_timestamp_ms, max_timestamp_ms, -1, -1, -1, record_count)


def sealed(
    batch: Buffer, producer: ProducerStamp | None, *, transactional: bool = False
) -> tuple[bytearray, memoryview]:
    """Header and records of one whole batch (v2), its CRC counted; the records are not copied.

    ``producer``: whose batch it is from now on (KIP-98), as part of its transaction or not; None: as it was.
    """
    view = memoryview(batch)
    header, records = bytearray(view[:HEADER_BYTES]), view[HEADER_BYTES:]
    if transactional:
        header[_ATTRIBUTES_LOW_AT] |= TRANSACTIONAL_BIT
    if producer is not None:
        _PRODUCER.pack_into(header, _PRODUCER_AT, *producer)
    _CRC.pack_into(header, _CRC_AT, crc32c.crc32c(records, crc32c.crc32c(header[_CRC_FROM:])))
    return header, records


def _check_integrity(view: memoryview, header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise _refuse(
            ErrorCode.CORRUPT_MESSAGE, f"magic {header.magic} must be {MAGIC}; encode with Kafka's record batch v2"
        )
    if not crc_matches(view, header.crc):
        raise _refuse(
            ErrorCode.CORRUPT_MESSAGE,
            f"crc {header.crc:#010x} is not the CRC-32C of the batch; encode and send it again",
        )


def _check_counts(header: BatchHeader) -> None:
    count = header.record_count
    if count <= 0:
        raise _refuse(ErrorCode.INVALID_RECORD, f"record count {count} must be positive; count the records")
    if header.last_offset_delta != count - 1:
        raise _refuse(
            ErrorCode.INVALID_RECORD,
            f"last offset delta {header.last_offset_delta} must be record count {count} - 1",
        )


def records_bytes_at_least(count: int) -> int:
    """What so many records need at least, not compressed."""
    return LEAST_RECORD_BYTES * count


def count_refusal(header: BatchHeader, records_bytes: int) -> Refusal | None:
    """Why records of this size, not compressed, cannot be as many as the header counts; None if they can.

    The count moves the log's end, so one that is too high would use up offsets and leave a hole that no consumer reads.
    """
    if records_bytes_at_least(header.record_count) <= records_bytes:
        return None
    return Refusal(
        ErrorCode.INVALID_RECORD,
        f"record count {header.record_count} is impossible: {records_bytes} bytes hold at most "
        f"{records_bytes // LEAST_RECORD_BYTES} records; count the records",
        Outcome.NOT_APPENDED,
    )


def _check_attributes(header: BatchHeader) -> None:
    if header.attributes & CONTROL_BIT:
        raise _refuse(ErrorCode.INVALID_RECORD, "control bit is set; clients must not write control batches")
    if header.attributes & TRANSACTIONAL_BIT and header.producer is None:
        raise _refuse(
            ErrorCode.INVALID_RECORD, "transactional bit is set without a producer; initialize one, or clear it"
        )
    if codec_of(header) > _MAX_COMPRESSION:
        raise _refuse(
            ErrorCode.INVALID_RECORD,
            f"compression codec {codec_of(header)} is unknown; use 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd",
        )


def _check_producer(header: BatchHeader) -> None:
    sent = header.producer
    if sent is not None and (sent.producer_id < 0 or sent.producer_epoch < 0 or sent.base_sequence < 0):
        raise _refuse(
            ErrorCode.INVALID_RECORD,
            f"producer id {sent.producer_id}, epoch {sent.producer_epoch} and base sequence {sent.base_sequence} "
            "must all be set, or the id -1",
        )


# ---- committed
# Which batches of an answer are given to a reader of committed records: no markers, nothing that was aborted (X14).
#
# Invariant: of an aborted transaction no batch is given, and of every other one all are, whatever part of it the answer
# holds, provided that the answer named every aborted transaction that overlaps it. Source: KIP-98, as Kafka's consumer.


def committed(batches: Iterable[Batch], aborted: Iterable[tuple[int, Offset]]) -> Iterator[Batch]:
    """The batches in their order, without those of aborted transactions and without control batches.

    Args:
        batches: of one partition, all of them below its last stable offset.
        aborted: (producer id, first offset) of each aborted transaction with an offset among the batches.
    """
    beginning = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        header = batch.header
        while beginning and beginning[-1][1] < header.next_offset:
            aborting.add(beginning.pop()[0])
        producer_id = None if header.producer is None else header.producer.producer_id
        if header.attributes & CONTROL_BIT:
            # Whatever it says, it ends what its producer had open.
            aborting.discard(-1 if producer_id is None else producer_id)
        elif not header.attributes & TRANSACTIONAL_BIT or producer_id not in aborting:
            yield batch
