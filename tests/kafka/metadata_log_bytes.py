"""The bytes of a metadata log, record by record, as a Kafka controller writes them; for tests of what reads them."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import crc32c

from strandline.records.batch import CONTROL_BIT, stamp
from strandline.records.codec import NewRecord, encode_batch

TOPIC_ID = "00000000-0000-4000-8000-000000000001"
TOPIC = UUID(TOPIC_ID).bytes
START_MS = 1_795_387_745_000


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def text(value: str) -> bytes:
    return uvarint(len(value) + 1) + value.encode()


def ids(*values: int) -> bytes:
    return uvarint(len(values) + 1) + b"".join(struct.pack(">i", value) for value in values)


def tagged(**by_tag: bytes) -> bytes:
    found = {int(name.removeprefix("t")): value for name, value in by_tag.items()}
    parts = (uvarint(tag) + uvarint(len(value)) + value for tag, value in sorted(found.items()))
    return uvarint(len(found)) + b"".join(parts)


def framed(number: int, version: int, body: bytes) -> bytes:
    return uvarint(1) + uvarint(number) + uvarint(version) + body


def feature(level: int = 30) -> bytes:
    return framed(12, 0, text("metadata.version") + struct.pack(">h", level) + b"\0")


def broker(node: int, *, is_migrating: bool = False) -> bytes:
    body = struct.pack(">i?", node, is_migrating) + bytes(16) + struct.pack(">q", 1) + ids() + ids() + b"\0\0\0\0"
    return framed(0, 2, body)


def topic(name: str = "t") -> bytes:
    return framed(2, 0, text(name) + TOPIC + b"\0")


def partition(*isr: int, index: int = 0, leader: int = 1, epoch: int = 0) -> bytes:
    """A partition with replicas 1, 2, 3; ``epoch`` is its partition epoch."""
    epochs = struct.pack(">iii", leader, 0, epoch)
    return framed(3, 0, struct.pack(">i", index) + TOPIC + ids(1, 2, 3) + ids(*isr) + ids() + ids() + epochs + b"\0")


def change(index: int = 0, **fields: bytes) -> bytes:
    """``t0`` ISR, ``t1`` leader, ``t2`` replicas, ``t4`` adding, ``t5`` recovery state."""
    return framed(5, 0, struct.pack(">i", index) + TOPIC + tagged(**fields))


def registration(node: int, **fields: bytes) -> bytes:
    return framed(17, 1, struct.pack(">iq", node, 1) + tagged(**fields))


def setting(value: str) -> bytes:
    return framed(4, 0, b"\x02" + text("t") + text("min.insync.replicas") + text(value) + b"\0")


NO_OP = framed(20, 0, b"\0")
FENCED = struct.pack(">b", 1)


def batch(offset: int, *values: bytes, epoch: int = 1, at_ms: int | None = None) -> bytes:
    when = START_MS + 100 * offset if at_ms is None else at_ms
    content = bytearray(encode_batch([NewRecord(None, value, when) for value in values]))
    stamp(content, offset, epoch)
    return bytes(content)


def voters(offset: int, *nodes: int, epoch: int = 1, at_ms: int | None = None) -> bytes:
    """A LeaderChange control batch that names the voters."""
    said = uvarint(len(nodes) + 1) + b"".join(struct.pack(">i", node) + b"\0" for node in nodes)
    value = struct.pack(">hi", 0, nodes[0]) + said + said + b"\0"
    return control(offset, 2, value, epoch, at_ms)


def control(offset: int, number: int, value: bytes, epoch: int = 1, at_ms: int | None = None) -> bytes:
    """A batch of one control record."""
    written_ms = START_MS + 100 * offset if at_ms is None else at_ms
    content = bytearray(encode_batch([NewRecord(struct.pack(">hh", 0, number), value, written_ms)]))
    struct.pack_into(">h", content, 21, CONTROL_BIT)
    struct.pack_into(">I", content, 17, crc32c.crc32c(content[21:]))
    stamp(content, offset, epoch)
    return bytes(content)


def node(root: Path, node_id: int, *batches: bytes, first: int = 0) -> Path:
    """The directory of a node with this log, of the cluster c."""
    folder = root / f"node{node_id}" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / f"{first:020}.log").write_bytes(b"".join(batches))
    (folder.parent / "meta.properties").write_text(f"node.id={node_id}\ncluster.id=c\n")
    return folder.parent


HEAD = (voters(0, 1), batch(1, feature()), batch(2, topic(), setting("2"), partition(1, 2, 3)))
"""A quorum of one voter, and a partition at offset 4; the next offset is 5."""
