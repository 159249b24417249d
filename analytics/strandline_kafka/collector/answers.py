"""Decodes the brokers' answers by tables of their fields (`history.wire`).

Invariant: arbitrary bytes become an answer or an `Unreadable`. Bytes left over after an answer are an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from strandline_kafka.collector import requests
from strandline_kafka.metadata.wire import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID_TEXT,
    Cursor,
    Field,
    Message,
    Type,
    Unreadable,
    array,
    record,
)

_UNSUPPORTED_VERSION = 35


def _nullable_record(*fields: Field) -> Type:
    inner = record(*fields)

    def read(cursor: Cursor, version: int) -> Message | None:
        marker: int = INT8.read(cursor, version)
        found: Message | None = None if marker < 0 else inner.read(cursor, version)
        return found

    return Type(read, 1)


def _nullable_bytes(cursor: Cursor, version: int) -> bytes:
    size = cursor.uvarint() - 1
    return bytes(cursor.take(size)) if size > 0 else b""


_TAGS = record()
_BYTES = Type(_nullable_bytes, 1)
_NODES = array(INT32)
_BROKER = record(Field("node_id", INT32), Field("host", STRING), Field("port", INT32), Field("rack", NULLABLE_STRING))
_PARTITION = record(
    Field("error", INT16),
    Field("index", INT32),
    Field("leader", INT32),
    Field("leader_epoch", INT32),
    Field("replicas", _NODES),
    Field("isr", _NODES),
    Field("offline", _NODES),
)
_METADATA = record(
    Field("throttle_ms", INT32),
    Field("brokers", array(_BROKER)),
    Field("cluster_id", NULLABLE_STRING),
    Field("controller_id", INT32),
    Field(
        "topics",
        array(
            record(
                Field("error", INT16),
                Field("name", NULLABLE_STRING),
                Field("topic_id", UUID_TEXT),
                Field("is_internal", BOOL),
                Field("partitions", array(_PARTITION)),
                Field("operations", INT32),
            )
        ),
    ),
)
_OFFSETS = record(
    Field("throttle_ms", INT32),
    Field(
        "topics",
        array(
            record(
                Field("name", STRING),
                Field(
                    "partitions",
                    array(
                        record(
                            Field("index", INT32),
                            Field("error", INT16),
                            Field("time", INT64),
                            Field("offset", INT64),
                            Field("leader_epoch", INT32),
                        )
                    ),
                ),
            )
        ),
    ),
)
_SYNONYM = record(Field("name", STRING), Field("value", NULLABLE_STRING), Field("source", INT8))
_CONFIGS = record(
    Field("throttle_ms", INT32),
    Field(
        "results",
        array(
            record(
                Field("error", INT16),
                Field("message", NULLABLE_STRING),
                Field("kind", INT8),
                Field("name", STRING),
                Field(
                    "configs",
                    array(
                        record(
                            Field("name", STRING),
                            Field("value", NULLABLE_STRING),
                            Field("read_only", BOOL),
                            Field("source", INT8),
                            Field("sensitive", BOOL),
                            Field("synonyms", array(_SYNONYM)),
                            Field("type", INT8),
                            Field("documentation", NULLABLE_STRING),
                        )
                    ),
                ),
            )
        ),
    ),
)
_DESCRIBED_PARTITION = record(
    Field("error", INT16),
    Field("index", INT32),
    Field("leader", INT32),
    Field("leader_epoch", INT32),
    Field("replicas", _NODES),
    Field("isr", _NODES),
    Field("elr", array(INT32, nullable=True)),
    Field("last_known_elr", array(INT32, nullable=True)),
    Field("offline", _NODES),
)
_DESCRIBED = record(
    Field("throttle_ms", INT32),
    Field(
        "topics",
        array(
            record(
                Field("error", INT16),
                Field("name", NULLABLE_STRING),
                Field("topic_id", UUID_TEXT),
                Field("is_internal", BOOL),
                Field("partitions", array(_DESCRIBED_PARTITION)),
                Field("operations", INT32),
            )
        ),
    ),
    Field("next", _nullable_record(Field("topic", STRING), Field("index", INT32))),
)
_VERSIONS = record(
    Field("apis", array(record(Field("key", INT16), Field("lowest", INT16), Field("highest", INT16)))),
    Field("throttle_ms", INT32),
)
_AUTHENTICATED = record(
    Field("error", INT16),
    Field("message", NULLABLE_STRING),
    Field("token", _BYTES),
    Field("lifetime_ms", INT64),
)

TopicPartitionName = tuple[str, int]
"""A partition as ListOffsets names it: by its topic's name, which a recreated topic has as well."""


class AnsweredOffset(NamedTuple):
    """A broker's answer about one partition: Kafka's error, the offset, and the leader epoch that it knows."""

    error: int
    offset: int
    leader_epoch: int


class ElrPage(NamedTuple):
    """Eligible leader replicas by topic id and partition, and the cursor of the next answer."""

    elrs: Mapping[tuple[str, int], tuple[int, ...]]
    next: tuple[str, int] | None


_QUORUM_REPLICAS = array(record(Field("replica", INT32), Field("end", INT64)))
_QUORUM = record(
    Field("error", INT16),
    Field(
        "topics",
        array(
            record(
                Field("name", STRING),
                Field(
                    "partitions",
                    array(
                        record(
                            Field("index", INT32),
                            Field("error", INT16),
                            Field("leader", INT32),
                            Field("leader_epoch", INT32),
                            Field("hw", INT64),
                            Field("voters", _QUORUM_REPLICAS),
                            Field("observers", _QUORUM_REPLICAS),
                        )
                    ),
                ),
            )
        ),
    ),
)


class Authenticated(NamedTuple):
    """The answer to one message of a login."""

    error: int
    message: str
    token: bytes


def correlation_of(frame: bytes) -> int:
    """The correlation id of the request that a frame answers.

    Raises:
        Unreadable: it is shorter than a header.
    """
    number: int = INT32.read(Cursor(frame), 0)
    return number


def _body(frame: bytes, api: requests.Api) -> Cursor:
    cursor = Cursor(frame)
    cursor.take(4)
    if api.flexible_response:
        _TAGS.read(cursor, 0)
    return cursor


def _whole(frame: bytes, api: requests.Api, body: Type) -> Message:
    cursor = _body(frame, api)
    message: Message = body.read(cursor, api.version)
    _ended(cursor, api)
    return message


def _ended(cursor: Cursor, api: requests.Api) -> None:
    if cursor.left:
        raise Unreadable(f"{cursor.left} bytes are left over behind an answer to {api.name}")


def read_versions(frame: bytes) -> requests.Offered | None:
    """The versions that a broker offers; None if it does not even know this version of the question.

    Raises:
        Unreadable: as all of these.
    """
    cursor = _body(frame, requests.API_VERSIONS)
    error: int = INT16.read(cursor, 0)
    if error == _UNSUPPORTED_VERSION:
        return None
    message: Message = _VERSIONS.read(cursor, requests.API_VERSIONS.version)
    _ended(cursor, requests.API_VERSIONS)
    return {each["key"]: (each["lowest"], each["highest"]) for each in message["apis"]}


def read_metadata(frame: bytes) -> Message:
    """An answer to Metadata, as `cluster.cluster_of` takes it."""
    return _whole(frame, requests.METADATA, _METADATA)


def read_offsets(frame: bytes) -> dict[TopicPartitionName, AnsweredOffset]:
    """Offsets by partition."""
    return {
        (topic["name"], each["index"]): AnsweredOffset(each["error"], each["offset"], each["leader_epoch"])
        for topic in _whole(frame, requests.LIST_OFFSETS, _OFFSETS)["topics"]
        for each in topic["partitions"]
    }


def read_min_isr(frame: bytes) -> tuple[dict[str, int], set[int]]:
    """min.insync.replicas by topic, and the errors of topics that have none."""
    found: dict[str, int] = {}
    errors: set[int] = set()
    for result in _whole(frame, requests.DESCRIBE_CONFIGS, _CONFIGS)["results"]:
        values = [each["value"] for each in result["configs"] if each["value"] is not None]
        if result["error"] or len(values) != 1 or not values[0].isdecimal():
            errors.add(result["error"])
        else:
            found[result["name"]] = int(values[0])
    return found, errors


def read_elrs(frame: bytes) -> ElrPage:
    """Eligible leader replicas of partitions without an error."""
    message = _whole(frame, requests.DESCRIBE_TOPIC_PARTITIONS, _DESCRIBED)
    elrs = {
        (topic["topic_id"], each["index"]): each["elr"] or ()
        for topic in message["topics"]
        for each in topic["partitions"]
        if not each["error"]
    }
    following = message["next"]
    return ElrPage(elrs, None if following is None else (following["topic"], following["index"]))


def read_quorum_hw(frame: bytes) -> tuple[int, int | None]:
    """Kafka's error, and the offset up to which the metadata log is committed; None if the answer lacks it."""
    message = _whole(frame, requests.DESCRIBE_QUORUM, _QUORUM)
    partitions = [each for topic in message["topics"] for each in topic["partitions"]]
    errors = [error for error in (message["error"], *(each["error"] for each in partitions)) if error]
    if errors or len(partitions) != 1 or partitions[0]["hw"] < 0:
        return next(iter(errors), 0), None
    return 0, int(partitions[0]["hw"])


def read_handshake(frame: bytes) -> tuple[int, tuple[str, ...]]:
    """Kafka's error, and the mechanisms that the listener has."""
    cursor = Cursor(frame)
    cursor.take(4)
    error: int = INT16.read(cursor, 0)
    count: int = INT32.read(cursor, 0)
    if count * 2 > cursor.left:
        raise Unreadable(f"an array of {count} elements is declared where {cursor.left} bytes are left")
    return error, tuple(_short_text(cursor) for _ in range(count))


def _short_text(cursor: Cursor) -> str:
    size: int = INT16.read(cursor, 0)
    if size < 0:
        raise Unreadable("a text is null that must not be")
    return str(cursor.take(size), "utf-8", "replace")


def read_authenticated(frame: bytes) -> Authenticated:
    """The answer to one message of a login."""
    message = _whole(frame, requests.SASL_AUTHENTICATE, _AUTHENTICATED)
    return Authenticated(message["error"], message["message"] or "", message["token"])
