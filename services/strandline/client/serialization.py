"""Converts keys and values to bytes and back with the user's functions.

Invariant: None is never serialized: it means no key, or a tombstone. A record that cannot be deserialized is reported
once and not returned; the records around it are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from strandline.client.groups.committed_offsets import OffsetAndMetadata
from strandline.client.log import log
from strandline.client.records import ConsumerRecord, TopicPartition
from strandline.records.codec import Headers

# ---- interceptor
# Interceptors see every record of a client on its way in or out, and may change it.
#
# Invariant: a failing interceptor changes nothing and loses nothing: its input continues unchanged, and the exception
# is logged (KIP-42).


class OutgoingRecord(NamedTuple):
    """One record as passed to `Producer.send`, before its key and value are serialized."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp_ms: int | None
    headers: Headers


class Interceptor:
    """Subclass it, override what you need, and pass it as ``interceptors``. The methods must not block."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Called by `Producer.send` for each record; what it returns is sent."""
        return record

    def on_records(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Called with the records that `Consumer.poll` or iteration is about to return; replaces them by its result.

        Records that it leaves out count as returned. `Consumer.fetch_batches` bypasses it.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called with the committed offsets of the consumer's group, after automatic and explicit commits."""


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
            # A copy, so that changes by a failing interceptor are dropped.
            records = list(interceptor.on_records(list(records)))
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            log.exception("on_records of %s failed; the records are given without it", type(interceptor).__name__)
    return records


def intercept_commit(interceptors: Sequence[Interceptor], offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Call every interceptor with what was committed, in their order."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            log.exception("on_commit of %s failed", type(interceptor).__name__)


Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


class SerializationFailed(ValueError):
    """A serializer raised, or did not return bytes; nothing was sent. Its own exception is the cause."""

    def __init__(self, topic: str, field: str, why: str) -> None:
        super().__init__(f"a record for topic '{topic}' was not sent: its {field} cannot be serialized ({why})")
        self.topic = topic
        self.field = field


class DeserializationFailed(ValueError):
    """A deserializer raised; its exception is the cause. The next call continues after this record."""

    def __init__(self, record: ConsumerRecord[bytes, bytes], field: str, why: str) -> None:
        super().__init__(
            f"{record.topic}-{record.partition} at offset {record.offset}: the {field} cannot be deserialized ({why}); "
            f"the next call goes on behind it"
        )
        self.record = record
        self.field = field


class Outgoing:
    """What a producer does to a record before it is buffered."""

    def __init__(
        self, key: Serializer | None, value: Serializer | None, interceptors: Sequence[Interceptor] = ()
    ) -> None:
        self._key = key
        self._value = value
        self._interceptors = tuple(interceptors)

    @property
    def changes_nothing(self) -> bool:
        """Whether records can go past it."""
        return self._key is None and self._value is None and not self._interceptors

    def prepare(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record with bytes in it.

        Raises:
            SerializationFailed: a serializer failed.
        """
        if self._interceptors:
            record = intercept_send(self._interceptors, record)
        value = _serialized(self._value, record.value, record.topic, "value")
        return record._replace(value=value, key=_serialized(self._key, record.key, record.topic, "key"))


class Incoming:
    """What a consumer does to records before it returns them one by one."""

    def __init__(
        self, key: Deserializer | None, value: Deserializer | None, interceptors: Sequence[Interceptor] = ()
    ) -> None:
        self._key = key
        self._value = value
        self._interceptors = tuple(interceptors)

    @property
    def changes_nothing(self) -> bool:
        """Whether records can go past it."""
        return self._key is None and self._value is None and not self._interceptors

    def convert(self, raw: ConsumerRecord[bytes, bytes]) -> ConsumerRecord[Any, Any]:
        """The record with its key and value deserialized.

        Raises:
            DeserializationFailed: a deserializer failed.
        """
        key = _deserialized(self._key, raw.key, raw, "key")
        return raw._replace(key=key, value=_deserialized(self._value, raw.value, raw, "value"))

    def intercept(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """These records after all interceptors."""
        return intercept_records(self._interceptors, records) if self._interceptors else records


def _serialized(serializer: Serializer | None, content: Any, topic: str, field: str) -> bytes | None:
    if serializer is None or content is None:
        return cast("bytes | None", content)
    try:
        found = serializer(content)
    except Exception as error:
        # Its type alone, because its text may quote the key or the value.
        raise SerializationFailed(topic, field, type(error).__name__) from error
    if not isinstance(found, bytes | bytearray | memoryview):
        raise SerializationFailed(topic, field, f"the serializer returned {type(found).__name__} instead of bytes")
    # A copy of what can change: the record waits, and the serializer may use its buffer again.
    return bytes(found)


def _deserialized(
    deserializer: Deserializer | None, content: bytes | None, record: ConsumerRecord[bytes, bytes], field: str
) -> Any:
    if deserializer is None or content is None:
        return content
    try:
        return deserializer(content)
    except Exception as error:
        # As above: no message has a key or a value in it.
        raise DeserializationFailed(record, field, type(error).__name__) from error
