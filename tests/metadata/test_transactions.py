"""A transaction as bytes: nothing is left out, and nothing damaged is believed."""

from __future__ import annotations

import dataclasses
import json
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
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.metadata.documents import DamagedDocument, read, sealed, write
from strandline.metadata.transactions import pack, state_of, unpack, whole

TOPIC = "6a1f0d8e-1111-4222-8333-444455556666"


def _everything() -> Transaction:
    image = NodeImage(
        node_id=NodeId(1), node_epoch=NodeEpoch(7), client_endpoint=Endpoint("a", 1), internal_endpoint=Endpoint("b", 2)
    )
    return Transaction(
        header=ClusterHeader(cluster_id="c", controller_epoch=3, metadata_offset=9),
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
