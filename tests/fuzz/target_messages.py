"""Target 7: every message of the contract is equal after writing and reading, also between two releases.

Invariant: a message survives its wire format; a later release that added a field, or an enum value, to every message
reads what this one wrote and is read by it, and fields that this one does not know are still there when it passes them
on. Stored types have the same oracle in the targets `small-files` and `store`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from draws import Draws, drawn
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from strandline.rpc.wire_fields import RecordsApart, WithRecords, varint
from strandline.v1 import leader_service_pb2 as pb

MODULES = tuple(
    import_module(f"strandline.v1.{name}_pb2")
    for name in (
        "error", "record", "partition", "metadata", "state_event", "leader_service", "follower_service",
        "controller_service",
    )
)  # fmt: skip
ADDED = "added_by_a_later_release"


def check(data: bytes) -> None:
    """The oracle."""
    draws = Draws(data)
    name = draws.choice(sorted(kinds()))
    message = drawn(draws, kinds()[name], {})
    wire = message.SerializeToString(deterministic=True)
    ours, theirs = type(message), GetMessageClass(later().FindMessageTypeByName(name))
    assert ours.FromString(wire) == message, "the wire changed it"

    read_later = theirs.FromString(wire)
    assert not read_later.HasField(ADDED), "absence became presence"
    assert ours.FromString(read_later.SerializeToString()) == message, "a later release changed it"

    setattr(read_later, ADDED, draws.integer(0, 1 << 31))
    for child in _children(read_later):
        setattr(child, ADDED, 7)
    skewed = ours.FromString(read_later.SerializeToString())
    again = theirs.FromString(skewed.SerializeToString())
    assert again == read_later, "passing it on lost what was not understood"
    for each in (skewed, *_children(skewed)):
        each.DiscardUnknownFields()
    assert skewed == message, "an unknown field changed a known one"


def _children(message: Message) -> Iterator[Any]:
    """Every message inside, at all depths."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for child in value if field.is_repeated else [value]:
            yield child
            yield from _children(child)


@cache
def kinds() -> dict[str, Descriptor]:
    """Every message type of the contract by full name, map entries left out."""
    found: dict[str, Descriptor] = {}
    for module in MODULES:
        waiting = list(module.DESCRIPTOR.message_types_by_name.values())
        while waiting:
            kind = waiting.pop()
            if not kind.GetOptions().map_entry:
                found[kind.full_name] = kind
                waiting += kind.nested_types
    return found


@cache
def later() -> DescriptorPool:
    """The contract of a later release: every message has one more optional field, every enum one more value."""
    pool = DescriptorPool()
    files: dict[str, Any] = {}
    for module in MODULES:
        _collect(module.DESCRIPTOR, files)
    for file in files.values():
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        if copy.package.startswith("strandline"):
            for message in copy.message_type:
                _grow(message)
            for enum in copy.enum_type:
                enum.value.add(name=f"{enum.name.upper()}_ADDED_LATER", number=9_999)
        pool.Add(copy)
    return pool


def _collect(file: Any, files: dict[str, Any]) -> None:
    """Collect a file after everything that it imports."""
    for needed in file.dependencies:
        _collect(needed, files)
    files.setdefault(file.name, file)


def _grow(message: descriptor_pb2.DescriptorProto) -> None:
    for nested in message.nested_type:
        if not nested.options.map_entry:
            _grow(nested)
    number = max([1_000, *(field.number for field in message.field)]) + 1
    message.oneof_decl.add(name=f"_{ADDED}")
    message.field.add(
        name=ADDED,
        number=number,
        label=FieldDescriptor.LABEL_OPTIONAL,
        type=FieldDescriptor.TYPE_INT64,
        proto3_optional=True,
        oneof_index=len(message.oneof_decl) - 1,
    )


# ---- records that are read apart
# For any bytes `RecordsApart` accepts and refuses what protobuf does, and gives the same message and records.

READERS = {
    pb.ProduceStreamRequest: RecordsApart(pb.ProduceStreamRequest, "topic_data", "partition_data", least_bytes=0),
    pb.FetchStreamResponse: RecordsApart(pb.FetchStreamResponse, "responses", "partitions", least_bytes=0),
}


def check_apart(data: bytes) -> None:
    """The oracle: a drawn message, some of its bytes changed."""
    draws = Draws(data)
    kind: Any = draws.choice(list(READERS))
    content = bytearray(drawn(draws, kind.DESCRIPTOR, {}).SerializeToString())
    for _ in range(draws.integer(0, 3)):
        at = draws.integer(0, len(content))
        content[at : at + draws.integer(0, 3)] = draws.choice([b"", b"\0", b"\x80", varint(draws.integer(0, 1 << 35))])
    agree(kind, bytes(content))


def agree(kind: Any, content: bytes) -> None:
    """Both readers find the same."""
    reader: RecordsApart[Any] = READERS[kind]
    expected = found = None
    with suppress(DecodeError):
        expected = reader.of(kind.FromString(content))
    with suppress(DecodeError):
        found = reader.read(content)
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
