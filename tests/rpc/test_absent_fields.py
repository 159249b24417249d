"""A field that a request leaves out is not known, and never the 0 or the empty text that it would be by default."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest
from fixed_topics import ID, FixedTopics

from strandline.rpc.convert import admin as admin
from strandline.rpc.convert import groups as groups
from strandline.rpc.convert import subscription as subscription
from strandline.v1 import controller_service_pb2 as controller
from strandline.v1 import group_service_pb2 as group
from strandline.v1 import metadata_service_pb2 as metadata

TOPICS = FixedTopics()
OFFSET = {"topic_id": ID, "partitions": [{"partition_index": 0, "committed_offset": 5}]}


def _topic(**given: int) -> dict[str, Any]:
    return {"name": "t", **given}


CASES: dict[str, tuple[Callable[[Any], Any], Any, Any, tuple[str, ...]]] = {
    "CreateTopics": (
        lambda message: admin.read_create_topics(message, lambda: "id"),
        controller.CreateTopicsRequest(topics=[_topic()]),
        controller.CreateTopicsRequest(
            topics=[_topic(num_partitions=0, replication_factor=0)], cluster_id="", request_id=""
        ),
        ("cluster_id", "request_id"),
    ),
    "CreateTopics, a topic": (
        lambda message: admin.read_create_topics(message, lambda: "id").topics[0],
        controller.CreateTopicsRequest(topics=[_topic()]),
        controller.CreateTopicsRequest(topics=[_topic(num_partitions=0, replication_factor=0)]),
        ("num_partitions", "replication_factor"),
    ),
    "CreatePartitions": (
        admin.read_create_partitions,
        controller.CreatePartitionsRequest(),
        controller.CreatePartitionsRequest(cluster_id="", request_id=""),
        ("cluster_id", "request_id"),
    ),
    "InitProducerId": (
        admin.read_init_producer_id,
        controller.InitProducerIdRequest(),
        controller.InitProducerIdRequest(producer_id=0, producer_epoch=0),
        ("producer_id", "producer_epoch"),
    ),
    "ShutdownNode": (
        admin.read_shutdown_node,
        controller.ShutdownNodeRequest(),
        controller.ShutdownNodeRequest(node_epoch=0),
        ("node_epoch",),
    ),
    "WatchMetadata": (
        admin.read_watch,
        controller.WatchMetadataRequest(),
        controller.WatchMetadataRequest(node_id=0, node_epoch=0, position={}),
        ("node_id", "node_epoch", "position"),
    ),
    "OffsetCommit": (
        lambda message: groups.read_commit(message, TOPICS).request,
        group.OffsetCommitRequest(group_id="g", topics=[OFFSET]),
        group.OffsetCommitRequest(
            group_id="g", topics=[OFFSET], generation_id_or_member_epoch=0, group_instance_id="", coordinator_epoch=0,
            sequence=0,
        ),
        ("member_epoch", "instance_id", "coordinator_epoch", "sequence"),
    ),
    "TxnOffsetCommit": (
        lambda message: groups.read_txn_commit(message, TOPICS).request,
        group.TxnOffsetCommitRequest(group_id="g", topics=[OFFSET]),
        group.TxnOffsetCommitRequest(group_id="g", topics=[OFFSET], generation_id=0, group_instance_id=""),
        ("member_epoch", "instance_id"),
    ),
    "OffsetFetch": (
        lambda message: groups.read_offset_fetch(message, TOPICS)[0].request,
        group.OffsetFetchRequest(groups=[{"group_id": "g"}]),
        group.OffsetFetchRequest(groups=[{"group_id": "g", "topics": {}, "member_id": "", "member_epoch": 0}]),
        ("partitions", "member_id", "member_epoch"),
    ),
    "Subscribe": (
        subscription.read_wanted,
        metadata.SubscribeRequest(),
        metadata.SubscribeRequest(since={}),
        ("since",),
    ),
    "as_of": (
        subscription.read_as_of,
        metadata.AsOf(),
        metadata.AsOf(node_id=0),
        ("node_id",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_absent_field_is_none(case: str) -> None:
    """Each by itself, while the same field with its default value is read as what it says."""
    read, absent, given, fields = CASES[case]
    missing = {name: attrgetter(name)(read(absent)) for name in fields}
    present = {name: attrgetter(name)(read(given)) for name in fields}

    assert missing == dict.fromkeys(fields)
    assert None not in present.values()


def test_the_epoch_of_a_committed_offset_is_its_own_field() -> None:
    """An offset that was committed without its leader epoch is of no epoch, and not of epoch 0."""
    epochs = []
    for fields in ({}, {"committed_leader_epoch": 0}):
        message = group.OffsetCommitRequest(group_id="g")
        message.topics.add(topic_id=ID).partitions.add(partition_index=0, committed_offset=5, **fields)
        (offset,) = groups.read_commit(message, TOPICS).request.offsets
        epochs.append(offset.leader_epoch)

    assert epochs == [None, 0]
