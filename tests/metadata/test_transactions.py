"""A transaction and the key head as bytes, and the order in which they are written."""

from __future__ import annotations

import dataclasses
import json
import random
import zlib

import pytest

from strandline.core.control.state import (
    ClusterHeader,
    ClusterState,
    NodeRecord,
    ReignRecord,
    RemovedNode,
    TopicRecord,
    Transaction,
)
from strandline.core.messages import Endpoint, NodeImage, PartitionImage
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType, Rule
from strandline.core.quotas import Quota, QuotaKey
from strandline.core.reigns.events import Head
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.metadata import etcd_layout
from strandline.metadata.documents import DamagedDocument, pack, read, sealed, state_of, unpack, whole, write

TOPIC = "6a1f0d8e-1111-4222-8333-444455556666"


def _rule(name: str) -> Rule:
    return Rule("client/x", Permission.DENY, Operation.READ, ResourceType.TOPIC, Pattern.PREFIXED, name)


def _everything() -> Transaction:
    image = NodeImage(
        node_id=NodeId(1), node_epoch=NodeEpoch(7), client_endpoint=Endpoint("a", 1), internal_endpoint=Endpoint("b", 2)
    )
    return Transaction(
        header=ClusterHeader(cluster_id="c", controller_epoch=3, metadata_offset=9),
        removed_acls=(_rule("gone"),),
        acls=(_rule("t"),),
        removed_quotas=(Quota("client/x", QuotaKey.REQUEST_RATE, 0.1),),
        quotas=(Quota("client/x", QuotaKey.REQUEST_RATE, 1e9),),
        removed_nodes=(RemovedNode(node_id=NodeId(4), node_epoch=NodeEpoch(2), directory_id="gone"),),
        nodes=(NodeRecord(image=image, incarnation_id="i", directory_id="d"),),
        topics=(
            TopicRecord(
                name="t\n\u00e9", topic_id=TOPIC, configs=(("a", "b"),), created_by="r1", grown_by=("r2", "r3")
            ),
        ),
        partitions=(
            PartitionImage(
                tp=TopicPartition(TOPIC, 0),
                replicas=(NodeId(1),),
                isr=(NodeId(1),),
                elr=(),
                leader=NodeId(1),
                leader_epoch=LeaderEpoch(2),
                partition_epoch=PartitionEpoch(5),
                min_isr=1,
            ),
        ),
        deleted_topic_ids=("old",),
        reigns=(
            ReignRecord(reign_id="a" * 32, controller_epoch=2, first_offset=1, last_offset=8),
            ReignRecord(reign_id="b" * 32, controller_epoch=3, first_offset=9, previous_reign_id="a" * 32),
        ),
    )


def test_every_field_of_a_transaction_comes_back() -> None:
    """What is packed is unpacked equal, and the example leaves no field of today's type empty."""
    transaction = _everything()

    assert all(getattr(transaction, field.name) for field in dataclasses.fields(Transaction))
    assert unpack(pack(transaction)) == transaction


def test_a_state_is_one_transaction() -> None:
    """A state written whole and read again is equal, so a snapshot stands in for the log."""
    state = state_of(dataclasses.replace(_everything(), removed_nodes=()))

    assert state.deleted_topic_ids == frozenset({"old"})
    assert state_of(unpack(pack(whole(state)))) == state
    assert state_of(whole(ClusterState(header=state.header))) == ClusterState(header=state.header)


def test_a_topic_of_an_earlier_release_was_created_by_no_known_request() -> None:
    """Documents that lack the request ids are read (C32); one that lacks a field it always had is refused."""
    record = TopicRecord(name="t", topic_id=TOPIC, created_by="r1", grown_by=("r2",))
    fields = json.loads(write(record)[9:])
    earlier = {name: value for name, value in fields.items() if name not in ("created_by", "grown_by")}

    assert read(write(record), TopicRecord) == record
    assert read(sealed(json.dumps(earlier)), TopicRecord) == TopicRecord(name="t", topic_id=TOPIC)
    with pytest.raises(DamagedDocument):
        read(sealed(json.dumps({"name": "t", "topic_id": TOPIC})), TopicRecord)


def test_a_node_of_an_earlier_release_is_read_as_one_with_room() -> None:
    """A field of the image inside a record may have come later, too; one that it always had is required."""
    record = next(iter(_everything().nodes))
    fields = json.loads(write(record)[9:])
    room = dataclasses.replace(record, image=dataclasses.replace(record.image, disk_nearly_full=False))

    del fields["image"]["disk_nearly_full"]
    assert read(sealed(json.dumps(fields)), NodeRecord) == room
    del fields["image"]["fenced"]
    with pytest.raises(DamagedDocument, match=r"NodeImage\.fenced is missing"):
        read(sealed(json.dumps(fields)), NodeRecord)


def test_a_partition_of_an_earlier_release_is_not_being_moved() -> None:
    """Documents of a release without reassignments are read, and mean that none runs or waits (C70)."""
    partition = next(iter(_everything().partitions))
    settled = dataclasses.replace(partition, adding=(), removing=(), original=(), queued_target=(), queue_number=0)
    fields = json.loads(write(settled)[9:])
    for name in ("adding", "removing", "original", "queued_target", "queue_number", "throttle_bytes_per_s"):
        del fields[name]

    assert read(sealed(json.dumps(fields)), PartitionImage) == settled


@pytest.mark.parametrize(
    "packed",
    [
        b"no zlib",
        zlib.compress(b"nonsense"),
        zlib.compress(b"later_kind " + sealed('"x"').encode()),
        zlib.compress(b"header 00000000 {}"),
        zlib.compress(b"deleted_topic_ids " + sealed('"x"').encode()),
    ],
    ids=["bytes", "no field", "later field", "checksum", "no header"],
)
def test_what_was_not_packed_is_refused(packed: bytes) -> None:
    """Damage and documents of a later release are refused, never read as something smaller."""
    with pytest.raises(DamagedDocument):
        unpack(packed)


# The value of the key head: what was written, or damage that is named, never another head.


HEAD = Head("a" * 32, 1_207, "0123456789abcdef" * 2, 55)


def test_a_head_is_read_as_it_was_written() -> None:
    """With the revision at which it was found."""
    assert etcd_layout.read_head(etcd_layout.head_value(HEAD), 55) == HEAD


def test_a_head_without_a_checksum_is_still_read() -> None:
    """An earlier build's value, byte for byte."""
    assert etcd_layout.read_head(b"%s 1207 %s" % (HEAD.reign_id.encode(), HEAD.digest.encode()), 55) == HEAD


@pytest.mark.parametrize("bit", range(8))
def test_one_bit_anywhere_is_damage(bit: int) -> None:
    """In the offset too, which no digest covers."""
    value = etcd_layout.head_value(HEAD)
    for at in range(len(value)):
        changed = bytearray(value)
        changed[at] ^= 1 << bit
        with pytest.raises(DamagedDocument):
            etcd_layout.read_head(bytes(changed), 55)


def test_a_cut_value_is_damage() -> None:
    """Wherever it was cut; but without its checksum alone it is the value of an earlier build, and true."""
    value = etcd_layout.head_value(HEAD)
    named = value.rindex(b" ")
    for end in (*range(named), *range(named + 1, len(value))):
        with pytest.raises(DamagedDocument):
            etcd_layout.read_head(value[:end], 55)
    assert etcd_layout.read_head(value[:named], 55) == HEAD


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"a 007 " + b"0" * 32,
        b"a -1 " + b"0" * 32,
        b"a 7 " + b"0" * 31,
        b"a 7 " + b"0" * 32 + b"\n",
        b"\xff 7 " + b"0" * 32,
    ],
)
def test_what_no_build_wrote_is_named_with_the_remedy(value: bytes) -> None:
    """The sentence says what is damaged and what to run."""
    with pytest.raises(DamagedDocument, match=r"the key head is damaged .*`strandline controller recover`"):
        etcd_layout.read_head(value, 1)


# What is written in which order: parts before what names them, and nothing behind a write that failed.


REIGN = "a" * 32


def transaction(offset: int, name_bytes: int = 0) -> Transaction:
    """A transaction; ``name_bytes`` that cannot be packed smaller make it a large one."""
    name = random.Random(offset).randbytes(name_bytes // 2).hex()
    topics = (TopicRecord(name=name, topic_id="t"),) if name_bytes else ()
    return Transaction(header=ClusterHeader(cluster_id="c", metadata_offset=offset), topics=topics)


def test_the_parts_of_a_transaction_come_before_it() -> None:
    """In their order, and what is whole in one value is one write."""
    (small,) = etcd_layout.batches(REIGN, [transaction(7)], part_bytes=400)
    (large,) = etcd_layout.batches(REIGN, [transaction(8, 3_000)], part_bytes=400)
    writes = list(etcd_layout.append_writes(large))

    assert list(etcd_layout.append_writes(small)) == [etcd_layout.AppendBatch(small)]
    assert len(writes) > 3
    assert writes[-1] == etcd_layout.AppendBatch(large)
    assert writes[:-1] == [
        etcd_layout.TransactionPart(8, n, content) for n, content in enumerate(large.pieces[0].parts)
    ]


def test_the_parts_of_a_snapshot_come_before_it() -> None:
    """What names them is last, and deletes what it replaces only then."""
    *parts, named = etcd_layout.snapshot_writes(Head(REIGN, 9, "d"), b"0123456789", part_bytes=4)

    assert parts == [
        etcd_layout.SnapshotPart(0, b"0123"),
        etcd_layout.SnapshotPart(1, b"4567"),
        etcd_layout.SnapshotPart(2, b"89"),
    ]
    assert isinstance(named, etcd_layout.SnapshotNamed)


@pytest.mark.parametrize(("fails_at", "written"), [(0, [0]), (2, [0, 1, 2]), (3, [0, 1, 2, 3]), (None, [0, 1, 2, 3])])
async def test_nothing_is_written_behind_what_failed(fails_at: int | None, written: list[int]) -> None:
    """The answer is the one of the last write that was made."""
    made: list[int] = []

    async def write(each: int) -> str:
        made.append(each)
        return "refused" if each == fails_at else f"done {each}"

    answer = await etcd_layout.write_in_order(iter(range(4)), write, lambda answer: answer != "refused")

    assert made == written
    assert answer == ("done 3" if fails_at is None else "refused")


async def test_a_write_without_an_answer_ends_the_rest() -> None:
    """An outcome that is not known is an exception of the performer; nothing may follow it."""
    made: list[int] = []

    async def write(each: int) -> bool:
        made.append(each)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await etcd_layout.write_in_order(iter(range(4)), write, bool)
    assert made == [0]
