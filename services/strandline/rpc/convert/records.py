"""Single records as messages, in both directions, for people and for languages without a batch codec.

Invariant: the cost of an answer is bounded before a batch is decoded, by the record count in its header. Records before
a batch that cannot be decoded are answered without an error. Offsets and epochs in a request are ignored; those in an
answer come from the batch that holds the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.types import AbortedTransaction, BatchHeader, Offset, TopicPartition
from strandline.records.batch import UNPACKED_RECORDS, committed, split_batches
from strandline.v1 import record_pb2

if TYPE_CHECKING:
    from strandline.records.codec import Record

MOST_BYTES = 4 << 20
"""Limit for all records in one answer, as messages; half of the largest message."""

_MOST_FAILURES = 8
"""After so many batches that cannot be decoded, one answer decodes no more."""
_RECORD_BYTES, _HEADER_BYTES = 32, 6
"""The overhead in a message of a record, and of each of its headers."""

Pace = Callable[[Iterable["Record"]], Iterable["Record"]]
"""Yields the same records; between two of them it may let other threads run."""


class Decoded(NamedTuple):
    """One partition's records as messages, or why the first one cannot be given."""

    records: Sequence[record_pb2.SimpleRecord]
    refusal: Refusal | None = None
    next_offset: Offset | None = None
    """The offset behind the last batch that was decoded or skipped; None with a refusal."""


class FetchedBatches(NamedTuple):
    """One partition's batches, and the aborted transactions that a read-committed reader skips."""

    tp: TopicPartition
    payload: bytes
    aborted: Sequence[AbortedTransaction] = ()


def encode_records(messages: Iterable[record_pb2.SimpleRecord], now_ms: int) -> bytes:
    """One uncompressed batch of a request's records; a record without a timestamp gets ``now_ms``, wall-clock.

    Raises:
        Refused: MESSAGE_TOO_LARGE, INVALID_TIMESTAMP.
    """
    # Imported here and below, because the codec is large and batches sent and fetched as bytes never need it.
    from strandline.records.codec import NewRecord, encode_batch

    return encode_batch(
        NewRecord(
            message.key if message.HasField("key") else None,
            message.value if message.HasField("value") else None,
            message.timestamp_ms if message.HasField("timestamp_ms") else now_ms,
            [(header.key, header.value if header.HasField("value") else None) for header in message.headers],
        )
        for message in messages
    )


def decode_records(
    fetched: Iterable[FetchedBatches], starts: Mapping[TopicPartition, Offset], pace: Pace = iter
) -> dict[TopicPartition, Decoded]:
    """The records of fetched batches, of each partition from its start on, as many as one answer may hold.

    Markers and aborted records are left out. It may run in any thread.
    """
    decoder = _Decoder(pace)
    return {one.tp: decoder.partition(one, starts[one.tp]) for one in fetched if one.payload}


class _Decoder:
    """Decodes the batches of one answer, and counts what it has decoded; each answer has its own."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._left_records = UNPACKED_RECORDS
        self._left_bytes = MOST_BYTES
        self._left_failures = _MOST_FAILURES

    def partition(self, fetched: FetchedBatches, start: Offset) -> Decoded:
        """The records of one partition, or why its first batch cannot be decoded."""
        found: list[record_pb2.SimpleRecord] = []
        batches = split_batches(fetched.payload)
        end = batches[-1].header.next_offset
        given = committed(batches, [(t.producer_id, t.first_offset) for t in fetched.aborted])
        for header, view in given if fetched.aborted else batches:
            if self._left_records < header.record_count <= UNPACKED_RECORDS or not self._left_failures:
                end = header.base_offset
                break
            is_fresh = self._left_bytes == MOST_BYTES
            try:
                found += self._batch(header, view, start)
            except Refused as error:
                self._left_failures -= 1
                # A batch that found only part of an answer's room may fit into the next answer.
                if found or (error.refusal.code is ErrorCode.MESSAGE_TOO_LARGE and not is_fresh):
                    end = header.base_offset
                    break
                return Decoded((), _unreadable(header, error.refusal))
        return Decoded(found, next_offset=max(start, end))

    def _batch(self, header: BatchHeader, view: memoryview, start: Offset) -> list[record_pb2.SimpleRecord]:
        from strandline.records.codec import iterate_batch

        if header.record_count > UNPACKED_RECORDS:
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"it holds more than {UNPACKED_RECORDS} records")
        self._left_records -= header.record_count
        left_bytes = self._left_bytes
        found: list[record_pb2.SimpleRecord] = []
        for record in self._pace(iterate_batch(view, max_expanded_bytes=left_bytes)):
            left_bytes -= _size_bytes(record)
            if left_bytes < 0:
                raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"its records are more than {MOST_BYTES} bytes of messages")
            if record.offset >= start:
                found.append(_write_record(record, header.stamped_epoch))
        self._left_bytes = left_bytes
        return found


def _size_bytes(record: Record) -> int:
    headers = sum(_HEADER_BYTES + len(key.encode()) + len(value or b"") for key, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _write_record(record: Record, leader_epoch: int) -> record_pb2.SimpleRecord:
    message = record_pb2.SimpleRecord(
        key=record.key,
        value=record.value,
        timestamp_ms=record.timestamp_ms,
        offset=record.offset,
        leader_epoch=leader_epoch,
    )
    for key, value in record.headers:
        message.headers.add(key=key, value=value)
    return message


def _unreadable(header: BatchHeader, refusal: Refusal) -> Refusal:
    return Refusal(
        refusal.code,
        f"the batch at offset {header.base_offset} ({header.record_count} records) cannot be given as messages: "
        f"{refusal.message}; fetch it without decode, or fetch from offset {header.next_offset} on",
    )
