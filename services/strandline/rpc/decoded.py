"""Decides how many records of a fetch go out as messages, and what is said of a batch that cannot.

Invariant: what one answer may cost is bounded before a batch is decoded, by the record count in its header; what can
be read in front of a batch that cannot be is answered, without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.types import BatchHeader, Offset, TopicPartition
from strandline.rpc.convert_records import StoredRecord, write_record
from strandline.v1 import record_pb2

MOST_BYTES = 4 << 20
"""Of all records in one answer, as messages; half of what a message may have."""

_MOST_FAILURES = 8
"""After so many batches that cannot be decoded nothing more is, in one answer."""
_RECORD_BYTES, _HEADER_BYTES = 32, 6
"""What a record, and each of its headers, takes in a message beside its contents."""


class Decoded(NamedTuple):
    """One partition's records as messages, or why the first of them cannot be given."""

    records: Sequence[record_pb2.SimpleRecord]
    refusal: Refusal | None = None


Split = Callable[[bytes], Sequence[tuple[BatchHeader, memoryview]]]


class Iterate(Protocol):
    """Gives the records of one batch; raises `Refused` for one that is damaged or expands too far."""

    def __call__(self, batch: memoryview, *, max_expanded_bytes: int) -> Iterable[StoredRecord]:
        """One record after another."""
        ...


class Decoder:
    """Takes the batches of one answer apart. One for each answer: it counts what was decoded for it."""

    def __init__(self, split: Split, iterate: Iterate, most_records: int) -> None:
        self._split = split
        self._iterate = iterate
        self._most_records = self._left_records = most_records
        self._left_bytes = MOST_BYTES
        self._left_failures = _MOST_FAILURES

    def decode(
        self, payloads: Iterable[tuple[TopicPartition, bytes]], starts: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, Decoded]:
        """The records of each partition from its start on, as many as one answer may hold."""
        return {tp: self._partition(payload, starts[tp]) for tp, payload in payloads if payload}

    def _partition(self, payload: bytes, start: Offset) -> Decoded:
        found: list[record_pb2.SimpleRecord] = []
        for header, view in self._split(payload):
            if self._left_records < header.record_count <= self._most_records or not self._left_failures:
                break
            is_fresh = self._left_bytes == MOST_BYTES
            try:
                found += self._batch(header, view, start)
            except Refused as error:
                self._left_failures -= 1
                # For a batch that found less room than an answer has, the next answer may have enough.
                if found or (error.refusal.code is ErrorCode.MESSAGE_TOO_LARGE and not is_fresh):
                    break
                return Decoded((), _unreadable(header, error.refusal))
        return Decoded(found)

    def _batch(self, header: BatchHeader, view: memoryview, start: Offset) -> list[record_pb2.SimpleRecord]:
        if header.record_count > self._most_records:
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"it holds more than {self._most_records} records")
        self._left_records -= header.record_count
        left_bytes = self._left_bytes
        found: list[record_pb2.SimpleRecord] = []
        for record in self._iterate(view, max_expanded_bytes=left_bytes):
            left_bytes -= _size_bytes(record)
            if left_bytes < 0:
                raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"its records are more than {MOST_BYTES} bytes of messages")
            if record.offset >= start:
                found.append(write_record(record, header.stamped_epoch))
        self._left_bytes = left_bytes
        return found


def _size_bytes(record: StoredRecord) -> int:
    headers = sum(_HEADER_BYTES + len(key.encode()) + len(value or b"") for key, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _unreadable(header: BatchHeader, refusal: Refusal) -> Refusal:
    return Refusal(
        refusal.code,
        f"the batch at offset {header.base_offset} ({header.record_count} records) cannot be given as messages: "
        f"{refusal.message}; fetch it without decode, or fetch from offset {header.next_offset} on",
    )
