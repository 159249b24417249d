"""Invalid requests to the controller: impossible topics, and processes with a false identity."""

from __future__ import annotations

import uuid

import grpc
import pytest
from raw_records import append, error_info
from running_cluster import CALL_S, Probe
from settled_logs import assert_settled

from strandline.core import types
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1 import error_pb2, metadata_pb2, partition_pb2

OBSERVER = 4


def topic_request(name: str = "never-made", **fields: object) -> pb.CreatableTopic:
    """A topic request that is valid except for one field."""
    given: dict[str, object] = {"name": name, "num_partitions": 1, "replication_factor": 3, **fields}
    return pb.CreatableTopic(**given)  # type: ignore[arg-type]


def assigned(*replicas: list[int]) -> dict[str, object]:
    """Explicit assignments instead of numbers."""
    rows = [pb.ReplicaAssignment(partition_index=index, node_ids=nodes) for index, nodes in enumerate(replicas)]
    return {"num_partitions": None, "replication_factor": None, "assignments": rows}


TOPICS = {
    "a path": (topic_request("../../x"), "INVALID_TOPIC_EXCEPTION", ("'../../x'", "1 to 249")),
    "300 characters": (topic_request("x" * 300), "INVALID_TOPIC_EXCEPTION", ("1 to 249",)),
    "a dot": (topic_request("."), "INVALID_TOPIC_EXCEPTION", ("1 to 249",)),
    "two dots": (topic_request(".."), "INVALID_TOPIC_EXCEPTION", ("1 to 249",)),
    "nothing": (topic_request(""), "INVALID_TOPIC_EXCEPTION", ("1 to 249",)),
    "a blank": (topic_request("a b"), "INVALID_TOPIC_EXCEPTION", ("'a b'",)),
    "a line end": (topic_request("ab\n"), "INVALID_TOPIC_EXCEPTION", ("1 to 249",)),
    "no letters of ours": (topic_request("größe"), "INVALID_TOPIC_EXCEPTION", ("1 to 249",)),
    "more replicas than nodes": (
        topic_request(replication_factor=4),
        "INVALID_REPLICATION_FACTOR",
        ("replication_factor 4", "between 1 and 3", "nodes that may lead"),
    ),
    "no replicas": (topic_request(replication_factor=0), "INVALID_REPLICATION_FACTOR", ("replication_factor 0",)),
    "negative replicas": (topic_request(replication_factor=-2), "INVALID_REPLICATION_FACTOR", ("factor -2",)),
    "no partitions": (topic_request(num_partitions=0), "INVALID_PARTITIONS", ("num_partitions 0", "between 1 and")),
    "a billion partitions": (topic_request(num_partitions=10**9), "INVALID_PARTITIONS", ("between 1 and",)),
    "an unknown setting": (topic_request(configs={"colour": "red"}), "INVALID_CONFIG", ("colour",)),
    "a bad setting": (
        topic_request(configs={"min.insync.replicas": "many"}),
        "INVALID_CONFIG",
        ("min.insync.replicas", "many", "whole number"),
    ),
    "an unknown node": (topic_request(**assigned([1, 9])), "INVALID_REPLICA_ASSIGNMENT", ("9", "not registered")),
    "an observer": (topic_request(**assigned([1, OBSERVER])), "INVALID_REPLICA_ASSIGNMENT", ("observers",)),
    "a node twice": (topic_request(**assigned([1, 1])), "INVALID_REPLICA_ASSIGNMENT", ("once",)),
}


@pytest.mark.parametrize(("wanted", "name", "words"), TOPICS.values(), ids=TOPICS.keys())
async def test_a_topic_that_cannot_be(
    probe: Probe, wanted: pb.CreatableTopic, name: str, words: tuple[str, ...]
) -> None:
    """An impossible topic is rejected with its own code, field and rule, and does not exist afterwards."""
    answer = await probe.controller.CreateTopics(pb.CreateTopicsRequest(topics=[wanted]), timeout=CALL_S)
    row = answer.topics[0]
    known = [topic.name for topic in (await probe.metadata()).topics]

    assert error_pb2.ErrorCode.Name(row.error_code) == f"ERROR_CODE_{name}", row.error_message
    assert [word for word in words if word not in row.error_message] == [], row.error_message
    assert len(row.error_message) < 400
    assert (row.name, row.topic_id) == (wanted.name, "")
    assert wanted.name not in known
    assert not (probe.local.directory / "x").exists()


async def test_a_name_is_given_once(probe: Probe, topic: str) -> None:
    """A second topic of the same name is rejected; the first is unchanged."""
    created = await probe.create_topic(topic)
    again = pb.CreateTopicsRequest(topics=[topic_request(topic)])
    answer = await probe.controller.CreateTopics(again, timeout=CALL_S)

    assert answer.topics[0].error_code == error_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS
    assert f"'{topic}'" in answer.topics[0].error_message
    assert (await probe.topic(topic)).topic_id == created.topic_id


async def test_partitions_only_grow(probe: Probe, topic: str) -> None:
    """Fewer partitions, or as many, are rejected; more are created."""
    await probe.create_topic(topic, partitions=2)
    codes = []
    for count in (1, 2, 3):
        growing = pb.GrowingTopic(name=topic, count=count)
        answer = await probe.controller.CreatePartitions(pb.CreatePartitionsRequest(topics=[growing]), timeout=CALL_S)
        codes.append(answer.results[0].error_code)
    await probe.in_sync(topic)

    assert codes == [error_pb2.ERROR_CODE_INVALID_PARTITIONS] * 2 + [0]
    assert len((await probe.topic(topic)).partitions) == 3


async def test_a_topic_made_anew_under_its_name_is_another_log(probe: Probe, topic: str) -> None:
    """A topic that was deleted and created again has another id and is empty; its old id is unknown (M63)."""
    first = await probe.create_topic(topic)
    await append(probe, topic, b"old")
    reference = partition_pb2.TopicReference(name=topic)
    await probe.controller.DeleteTopics(pb.DeleteTopicsRequest(topics=[reference]), timeout=CALL_S)
    second = await probe.create_topic(topic)
    offset = await append(probe, topic, b"new")
    old = partition_pb2.TopicReference(topic_id=first.topic_id)
    described = await probe.controller.DescribeTopics(pb.DescribeTopicsRequest(topics=[old]), timeout=CALL_S)
    both = partition_pb2.TopicReference(name=topic, topic_id=first.topic_id)
    disagreeing = await probe.controller.DescribeTopics(pb.DescribeTopicsRequest(topics=[both]), timeout=CALL_S)
    await assert_settled(probe, topic)

    assert second.topic_id != first.topic_id
    assert offset == 0
    assert described.topics[0].error_code == error_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
    assert disagreeing.topics[0].error_code in (
        error_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
        error_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID,
    )


async def test_a_stale_heartbeat_is_refused(probe: Probe) -> None:
    """A heartbeat of a superseded process is answered STALE_BROKER_EPOCH and keeps no session alive."""
    metadata, node = await probe.metadata(), await probe.node(1)
    request = pb.HeartbeatRequest(node_id=1, node_epoch=node.node_epoch - 1, cluster_id=metadata.cluster_id)
    answer = await probe.controller.Heartbeat(request, timeout=CALL_S)

    assert answer.error_code == error_pb2.ERROR_CODE_STALE_BROKER_EPOCH
    assert f"node_epoch {node.node_epoch - 1}" in answer.error_message
    assert "must stop" in answer.error_message


async def test_a_heartbeat_of_nobody_is_refused(probe: Probe) -> None:
    """A heartbeat of a node that never registered is rejected as such."""
    request = pb.HeartbeatRequest(node_id=77, node_epoch=1, cluster_id=(await probe.metadata()).cluster_id)
    answer = await probe.controller.Heartbeat(request, timeout=CALL_S)

    assert answer.error_code == error_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED
    assert "node 77 is not registered" in answer.error_message


def proposal(
    metadata: metadata_pb2.ClusterMetadata, topic: metadata_pb2.TopicMetadata, isr: list[int]
) -> pb.AlterPartitionRequest:
    """A proposal the leader could send; its sequence is far below any real one, so that it fences no later one."""
    now = topic.partitions[0]
    row = pb.AlterPartitionProposal(
        partition_index=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        new_isr_with_epochs=[pb.IsrMember(node_id=node_id) for node_id in isr],
    )
    return pb.AlterPartitionRequest(
        node_id=now.leader_id,
        node_epoch=next(node.node_epoch for node in metadata.nodes if node.node_id == now.leader_id),
        cluster_id=metadata.cluster_id,
        controller_epoch=metadata.controller_epoch,
        request_sequence=-1,
        topics=[pb.AlterPartitionTopic(topic_id=topic.topic_id, partitions=[row])],
    )


async def test_isr_changes_of_the_wrong_process_are_refused(probe: Probe, topic: str) -> None:
    """AlterPartition of a superseded process, or addressed to another controller epoch, changes nothing."""
    created = await probe.create_topic(topic)
    metadata = await probe.metadata()
    stale_node = proposal(metadata, created, [1])
    stale_node.node_epoch -= 1
    stale_reign = proposal(metadata, created, [1])
    stale_reign.controller_epoch -= 1
    answers = [await probe.controller.AlterPartition(each, timeout=CALL_S) for each in (stale_node, stale_reign)]

    assert [answer.error_code for answer in answers] == [
        error_pb2.ERROR_CODE_STALE_BROKER_EPOCH,
        error_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH,
    ]
    assert "must stop" in answers[0].error_message
    assert "refresh metadata" in answers[1].error_message
    assert (await probe.topic(topic)).partitions[0] == created.partitions[0]


def registration(cluster_id: str | None, **fields: object) -> pb.RegisterNodeRequest:
    """A registration of a new node 50 that is valid except for one field."""
    here = partition_pb2.Endpoint(host="127.0.0.1", port=1)
    given: dict[str, object] = {
        "node_id": 50,
        "cluster_id": cluster_id,
        "incarnation_id": str(uuid.uuid4()),
        "directory_id": str(uuid.uuid4()),
        "endpoints": metadata_pb2.NodeEndpoints(client=here, internal=here),
        "roles": [metadata_pb2.NODE_ROLE_LEADER, metadata_pb2.NODE_ROLE_FOLLOWER],
        "feature_levels": metadata_pb2.FeatureLevels(min_level=1, max_level=1),
        **fields,
    }
    return pb.RegisterNodeRequest(**given)  # type: ignore[arg-type]


PAGE_CACHE = metadata_pb2.Rules(durability=metadata_pb2.DURABILITY_PAGE_CACHE)
FUTURE = metadata_pb2.FeatureLevels(min_level=900, max_level=901)
REGISTRATIONS = {
    "of another cluster": ({"cluster_id": "another-cluster"}, "INCONSISTENT_CLUSTER_ID", "cluster_id", ("cluster_id",)),
    "under other rules": (
        {"rules": PAGE_CACHE},
        "INVALID_CONFIG",
        "rules.durability",
        ("durability=page-cache", "durability=fsync"),
    ),
}


@pytest.mark.parametrize(("fields", "name", "field", "words"), REGISTRATIONS.values(), ids=REGISTRATIONS.keys())
async def test_a_node_that_does_not_fit_is_refused(
    probe: Probe, fields: dict[str, object], name: str, field: str, words: tuple[str, ...]
) -> None:
    """A registration that does not match is FAILED_PRECONDITION with an ErrorInfo that names the field."""
    own = (await probe.metadata()).cluster_id
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await probe.controller.RegisterNode(registration(**{"cluster_id": own, **fields}), timeout=CALL_S)
    details = raised.value.details() or ""

    info = error_info(raised.value)
    assert (raised.value.code().name, info.reason, info.metadata["field"]) == ("FAILED_PRECONDITION", name, field)
    assert [word for word in words if word not in details] == [], details
    assert 50 not in {node.node_id for node in (await probe.metadata()).nodes}


async def test_a_node_from_the_future_is_refused(probe: Probe) -> None:
    """A node without a common feature level gets both ranges in the error, and is not registered."""
    own = (await probe.metadata()).cluster_id
    answer = await probe.controller.RegisterNode(registration(own, feature_levels=FUTURE), timeout=CALL_S)

    assert answer.error_code == error_pb2.ERROR_CODE_UNSUPPORTED_VERSION
    ours = f"{types.LOWEST}-{types.HIGHEST}"
    assert f"feature levels 900-901 of node 50 do not overlap {ours}" in answer.error_message
    assert not answer.HasField("node_epoch")
    assert 50 not in {node.node_id for node in (await probe.metadata()).nodes}


async def test_two_processes_are_not_one_node(probe: Probe) -> None:
    """A process with another data directory cannot take over a living node's id."""
    own = (await probe.metadata()).cluster_id
    before = await probe.node(1)
    answer = await probe.controller.RegisterNode(registration(own, node_id=1), timeout=CALL_S)

    assert answer.error_code == error_pb2.ERROR_CODE_DUPLICATE_BROKER_REGISTRATION
    assert "node_id 1 is in use" in answer.error_message
    assert await probe.node(1) == before
