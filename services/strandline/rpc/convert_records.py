"""Decides how single records stand in messages, for people and for languages without a batch codec.

Invariant: the hot path never comes here; a request's own offsets and epochs are ignored, an answer's come
from the batch they were read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from strandline.v1 import record_pb2

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp in ms, headers: what a batch builder takes."""


class StoredRecord(Protocol):
    """A record as a codec reads it."""

    @property
    def offset(self) -> int:
        """Its offset."""
        ...

    @property
    def timestamp_ms(self) -> int | None:
        """Its time, None if it has none."""
        ...

    @property
    def key(self) -> bytes | None:
        """Its key."""
        ...

    @property
    def value(self) -> bytes | None:
        """Its value."""
        ...

    @property
    def headers(self) -> Headers:
        """Its headers."""
        ...


def read_records(messages: Iterable[record_pb2.SimpleRecord], now_ms: int) -> list[NewRecord]:
    """Records of a request; one without a timestamp gets ``now_ms``, wall-clock."""
    return [
        (
            message.key if message.HasField("key") else None,
            message.value if message.HasField("value") else None,
            message.timestamp_ms if message.HasField("timestamp_ms") else now_ms,
            [(header.key, header.value if header.HasField("value") else None) for header in message.headers],
        )
        for message in messages
    ]


def write_record(record: StoredRecord, leader_epoch: int) -> record_pb2.SimpleRecord:
    """A record of an answer."""
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
