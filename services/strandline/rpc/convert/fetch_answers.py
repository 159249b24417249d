"""Encodes the answers of a FetchStream around their records, which are copied once.

As protobuf objects the records would be copied three times: into their row, with it into the answer, and out of it.
A message is encoded as its fields one after the other, in any order. So a topic that was encoded without its rows is
completed by appending them, and a row by appending its records.

Invariant: the bytes decode to exactly the message that `convert_fetch.fetch_topics` makes of the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from strandline.core.messages import ServedPartition
from strandline.rpc.convert.errors import Topics, Unresolved, by_topic
from strandline.rpc.convert.fetch import bytes_of, fetch_topics, row_without_records
from strandline.v1 import leader_service_pb2, partition_pb2

# ---- wire_fields
# Single fields of a message, encoded by hand, for messages that are put together from bytes encoded before.
#
# Invariant: a message is encoded as its fields one after the other, in any order; so bytes of one message may be
# appended to those of another of the same type, and a submessage wrapped in its field.

_LENGTH_DELIMITED = 2


@lru_cache(4_096)
def varint(number: int) -> bytes:
    """A number of at least 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(message: Any, field: str) -> bytes:
    """What comes before a submessage, text or bytes in this field, followed by their length."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


_RESPONSES = tag(leader_service_pb2.FetchStreamResponse, "responses")
_PARTITIONS = tag(partition_pb2.FetchTopicResponse, "partitions")
_RECORDS = tag(partition_pb2.FetchPartitionResponse, "records")


def encode_fetch_answer(
    correlation_id: int, served: Iterable[ServedPartition], unresolved: Sequence[Unresolved], topics: Topics
) -> bytes:
    """A `FetchStreamResponse` that answers these partitions, encoded."""
    head = leader_service_pb2.FetchStreamResponse(correlation_id=correlation_id)
    if unresolved:
        head.responses.extend(fetch_topics((), unresolved, topics))
    pieces: list[bytes] = [head.SerializeToString()]
    for topic_id, parts in by_topic(served, attrgetter("result.tp")):
        topic = _topic(topic_id, parts, topics)
        pieces += (_RESPONSES, varint(sum(map(len, topic))), *topic)
    return b"".join(pieces)


@lru_cache(1_024)
def _topic_without_rows(name: str, topic_id: str) -> bytes:
    return bytes(partition_pb2.FetchTopicResponse(topic=name, topic_id=topic_id).SerializeToString())


def _topic(topic_id: str, parts: Iterable[ServedPartition], topics: Topics) -> list[bytes]:
    pieces = [_topic_without_rows(topics.name_of(topic_id), topic_id)]
    for part in parts:
        row = row_without_records(part.result, topics).SerializeToString()
        payload = bytes_of(part)
        if payload:
            length = varint(len(payload))
            size_bytes = len(row) + len(_RECORDS) + len(length) + len(payload)
            pieces += (_PARTITIONS, varint(size_bytes), row, _RECORDS, length, payload)
        else:
            pieces += (_PARTITIONS, varint(len(row)), row)
    return pieces
