"""What sees every record of a client on its way in or out, and may change it.

Invariant: a failing interceptor changes nothing and loses nothing: what it was given goes on as it was, and the
exception is logged (KIP-42).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from strandline.client.committed_offsets import OffsetAndMetadata
from strandline.client.fetched import ConsumerRecord
from strandline.client.logger import log
from strandline.client.topic_partition import TopicPartition
from strandline.records.codec import Headers


class OutgoingRecord(NamedTuple):
    """One record as `Producer.send` took it, before its key and value are serialized."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp_ms: int | None
    headers: Headers


class Interceptor:
    """Derive from it, override what is of interest, and give it as ``interceptors``. The methods must not block."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Called by `Producer.send` for each record; what it returns is sent."""
        return record

    def on_records(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Called with what `Consumer.poll` is about to return, or iteration to give; what it returns is given.

        Records that it leaves out count as given. `Consumer.fetch_batches` goes past it.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called with the positions of the consumer's group that were committed, by itself or by the user."""


def intercept_send(interceptors: Sequence[Interceptor], record: OutgoingRecord) -> OutgoingRecord:
    """The record after every interceptor, in their order."""
    for interceptor in interceptors:
        try:
            record = OutgoingRecord(*interceptor.on_send(record))
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            log.exception("on_send of %s failed; the record is sent without it", type(interceptor).__name__)
    return record


def intercept_records(
    interceptors: Sequence[Interceptor], records: list[ConsumerRecord[Any, Any]]
) -> list[ConsumerRecord[Any, Any]]:
    """The records after every interceptor, in their order."""
    for interceptor in interceptors:
        try:
            # A copy: what a failing one did to its list is not kept.
            records = list(interceptor.on_records(list(records)))
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            log.exception("on_records of %s failed; the records are given without it", type(interceptor).__name__)
    return records


def intercept_commit(interceptors: Sequence[Interceptor], offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Show every interceptor what was committed, in their order."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            log.exception("on_commit of %s failed", type(interceptor).__name__)
