"""Target 16: records that are read apart from their message are those that protobuf reads.

Invariant: for any bytes `RecordsApart` accepts and refuses what protobuf does, and gives the same message and records.
"""

from __future__ import annotations

from typing import Any

from draws import Draws, drawn
from google.protobuf.message import DecodeError, Message

from strandline.rpc.wire_fields import RecordsApart, WithRecords, varint
from strandline.v1 import leader_service_pb2 as pb

KINDS = {
    pb.ProduceStreamRequest: RecordsApart(pb.ProduceStreamRequest, "topic_data", "partition_data", least_bytes=0),
    pb.FetchStreamResponse: RecordsApart(pb.FetchStreamResponse, "responses", "partitions", least_bytes=0),
}


def check(data: bytes) -> None:
    """The oracle: a drawn message, some of its bytes changed."""
    draws = Draws(data)
    kind: Any = draws.choice(list(KINDS))
    content = bytearray(drawn(draws, kind.DESCRIPTOR, {}).SerializeToString())
    for _ in range(draws.integer(0, 3)):
        at = draws.integer(0, len(content))
        content[at : at + draws.integer(0, 3)] = draws.choice([b"", b"\0", b"\x80", varint(draws.integer(0, 1 << 35))])
    agree(kind, bytes(content))


def agree(kind: Any, content: bytes) -> None:
    """Both readers find the same."""
    reader: RecordsApart[Any] = KINDS[kind]
    try:
        expected = reader.of(kind.FromString(content))
    except DecodeError:
        expected = None
    try:
        found = reader.read(content)
    except DecodeError:
        found = None
    assert _plain(found) == _plain(expected), f"the readers disagree about {content.hex()}"


def _plain(read: WithRecords[Any] | None) -> tuple[Message, list[bytes]] | None:
    """The message without records, and these."""
    if read is None:
        return None
    records, message = [bytes(one) for one in read.records], read.message
    for topic in (*getattr(message, "topic_data", ()), *getattr(message, "responses", ())):
        for row in (*getattr(topic, "partition_data", ()), *getattr(topic, "partitions", ())):
            row.ClearField("records")
    return message, records
