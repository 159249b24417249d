"""Invalid requests to nodes and controllers in a running cluster, and the exact answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import pytest
from raw_records import append, batch, error_info, patched, produce, produce_request
from running_cluster import CALL_S, Probe
from settled_logs import assert_settled

from strandline.core import types
from strandline.records.batch import CONTROL_BIT, MAX_BATCH_BYTES, TRANSACTIONAL_BIT
from strandline.records.codec import NewRecord, encode_batch
from strandline.v1 import (
    controller_service_pb2 as pb_controller,
    error_pb2,
    leader_service_pb2 as pb,
    metadata_pb2,
    partition_pb2,
)

SOUND = batch(b"sound")
_MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _DELTA_AT, _MAX_TIMESTAMP_AT, _PRODUCER_AT, _COUNT_AT = 16, 17, 21, 23, 35, 43, 57
_TWO_MIB = 2 << 20


def too_large() -> bytes:
    """A valid batch, one byte above the limit or a little more."""
    return encode_batch([NewRecord(None, bytes(MAX_BATCH_BYTES), 0)], max_bytes=_TWO_MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """One bad batch and the answer to it; the message contains ``words``: the field, the rule, the remedy."""

    records: Callable[[], bytes]
    code: error_pb2.ErrorCode.ValueType
    words: tuple[str, ...]
    partition: int = 0


BATCHES = {
    "wrong CRC": Bad(
        records=lambda: patched(SOUND, _CRC_AT, ">I", 0x12345678, with_crc=False),
        code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        words=("crc 0x12345678", "CRC-32C", "encode and send it again"),
    ),
    "flipped bit": Bad(
        records=lambda: SOUND[:-1] + bytes([SOUND[-1] ^ 1]),
        code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        words=("crc", "encode and send it again"),
    ),
    "magic 1": Bad(
        records=lambda: patched(SOUND, _MAGIC_AT, ">b", 1),
        code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        words=("magic 1", "must be 2", "record batch v2"),
    ),
    "negative count": Bad(
        records=lambda: patched(SOUND, _COUNT_AT, ">i", -1),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("record count -1", "must be positive", "count the records"),
    ),
    "count and offsets disagree": Bad(
        records=lambda: patched(SOUND, _DELTA_AT, ">i", 5),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("last offset delta 5", "must be record count 1 - 1"),
    ),
    "above the limit": Bad(
        records=too_large,
        code=error_pb2.ERROR_CODE_MESSAGE_TOO_LARGE,
        words=("batch size", f"limit of {MAX_BATCH_BYTES} bytes", "send smaller batches"),
    ),
    "control bit": Bad(
        records=lambda: patched(SOUND, _ATTRIBUTES_AT, ">h", CONTROL_BIT),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("control bit is set", "clients must not"),
    ),
    "transactional bit": Bad(
        records=lambda: patched(SOUND, _ATTRIBUTES_AT, ">h", TRANSACTIONAL_BIT),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("transactional bit is set", "clear it"),
    ),
    "unknown codec": Bad(
        records=lambda: patched(SOUND, _ATTRIBUTES_AT, ">h", 7),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("compression codec 7", "use 0 none"),
    ),
    "timestamp below -1": Bad(
        records=lambda: patched(SOUND, _MAX_TIMESTAMP_AT, ">q", -5),
        code=error_pb2.ERROR_CODE_INVALID_TIMESTAMP,
        words=("timestamps", "must be -1"),
    ),
    "producer id without a sequence": Bad(
        records=lambda: patched(SOUND, _PRODUCER_AT, ">q", 7),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("producer id 7", "must all be set"),
    ),
    "sequence out of order": Bad(
        records=lambda: batch(b"late", producer=(999_999, 0), sequence=3),
        code=error_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER,
        words=("base_sequence 3", "producer 999999"),
    ),
    "cut off": Bad(
        records=lambda: SOUND[:-3],
        code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        words=("length prefix", "send whole batches"),
    ),
    "a few bytes": Bad(
        records=lambda: b"hello", code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE, words=("length prefix needs 12 bytes",)
    ),
    "nothing": Bad(records=lambda: b"", code=error_pb2.ERROR_CODE_INVALID_RECORD, words=("no batch", "send one")),
    "two batches": Bad(
        records=lambda: SOUND + SOUND,
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("more than one batch", "send one per partition"),
    ),
    "partition out of range": Bad(
        records=lambda: SOUND,
        partition=7,
        code=error_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        words=("has no partition 7", "DescribeTopics"),
    ),
    "negative partition": Bad(
        records=lambda: SOUND,
        partition=-1,
        code=error_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        words=("has no partition -1",),
    ),
}


@pytest.fixture(scope="module")
def bad_batches_topic() -> str:
    """One topic for all bad batches: none of them is ever in it."""
    return "bad-batches"


async def existing(probe: Probe, topic: str) -> int:
    """The topic's leader; creates the topic if needed."""
    if topic not in {known.name for known in (await probe.metadata()).topics}:
        await probe.create_topic(topic)
    return await probe.leader(topic)


@pytest.mark.parametrize("bad", BATCHES.values(), ids=BATCHES.keys())
async def test_a_bad_batch_is_refused_and_not_written(probe: Probe, bad_batches_topic: str, bad: Bad) -> None:
    """A bad batch is rejected with its own code, definitely, with field, rule and remedy; nothing is written."""
    leader = await existing(probe, bad_batches_topic)
    answer = await produce(probe, leader, bad_batches_topic, bad.records(), partition=bad.partition)
    after = await probe.described(bad_batches_topic, leader)

    assert error_pb2.ErrorCode.Name(answer.error_code) == error_pb2.ErrorCode.Name(bad.code), answer.error_message
    assert answer.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert not answer.HasField("base_offset")
    assert [word for word in bad.words if word not in answer.error_message] == [], answer.error_message
    assert after.log_end_offset == 0


async def test_a_good_batch_beside_a_bad_one_is_written(probe: Probe, topic: str) -> None:
    """Errors are per partition: one rejected batch does not keep another from being written."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    other = f"{topic}-2"
    await probe.create_topic(other, assignment=[1, 2, 3])
    request = produce_request(topic, SOUND)
    request.topic_data.extend(produce_request(other, SOUND[:-1]).topic_data)
    answer = await probe.leader_service(1).Produce(request, timeout=CALL_S)
    codes = {entry.name: entry.partition_responses[0].error_code for entry in answer.responses}

    assert codes == {topic: 0, other: error_pb2.ERROR_CODE_CORRUPT_MESSAGE}


@pytest.mark.parametrize("name", ["no-such-topic", "../../x", "", "x" * 300])
async def test_an_unknown_topic_is_named(probe: Probe, name: str) -> None:
    """A produce to a topic that does not exist is rejected, definitely, and names the topic."""
    answer = await produce(probe, 1, name, SOUND)
    expected = error_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION if name else error_pb2.ERROR_CODE_INVALID_REQUEST

    assert answer.error_code == expected
    assert answer.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert name in answer.error_message
    assert len(answer.error_message) < 500


async def test_a_node_that_does_not_lead_names_the_leader(probe: Probe, topic: str) -> None:
    """NOT_LEADER_OR_FOLLOWER has the leader, its epoch, and its address: one round trip is enough (KIP-951)."""
    await probe.create_topic(topic, assignment=[2, 1, 3])
    answer = await produce(probe, 1, topic, SOUND)
    now = await probe.partition(topic)
    address = probe.local.address(2)

    assert answer.error_code == error_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert answer.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, now.leader_epoch)
    assert address is not None
    assert f"{answer.current_leader.endpoint.host}:{answer.current_leader.endpoint.port}" == address.client


def acks_two(topic: str) -> pb.ProduceRequest:
    """acks is 2, which is not a valid value."""
    return produce_request(topic, SOUND, acks=2)


def negative_timeout(topic: str) -> pb.ProduceRequest:
    """The time-out is negative."""
    return produce_request(topic, SOUND, timeout_ms=-1)


def named_twice(topic: str) -> pb.ProduceRequest:
    """One partition with two batches."""
    request = produce_request(topic, SOUND)
    request.topic_data[0].partition_data.add(index=0, records=SOUND)
    return request


def nothing_named(topic: str) -> pb.ProduceRequest:
    """A request without a partition."""
    return pb.ProduceRequest()


def other_cluster(topic: str) -> pb.ProduceRequest:
    """A request for another cluster."""
    request = produce_request(topic, SOUND)
    request.cluster_id = "another-cluster"
    return request


WHOLE = [
    (acks_two, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUIRED_ACKS", ("acks 2", "0, 1 or -1")),
    (negative_timeout, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", ("timeout_ms -1", "not be negative")),
    (named_twice, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", ("partition 0", "named twice", "once")),
    (nothing_named, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", ("names no partition", "at least one")),
    (
        other_cluster,
        grpc.StatusCode.FAILED_PRECONDITION,
        "INCONSISTENT_CLUSTER_ID",
        ("cluster_id 'another-cluster'", "connect to the cluster"),
    ),
]


@pytest.mark.parametrize(
    ("build", "status", "reason", "words"), WHOLE, ids=lambda value: getattr(value, "__name__", "")
)
async def test_a_bad_produce_is_refused_as_a_whole(
    probe: Probe,
    bad_batches_topic: str,
    build: Callable[[str], pb.ProduceRequest],
    status: grpc.StatusCode,
    reason: str,
    words: tuple[str, ...],
) -> None:
    """A request that is invalid as a whole has a status, and an ErrorInfo with code, remedy and outcome."""
    leader = await existing(probe, bad_batches_topic)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await probe.leader_service(leader).Produce(build(bad_batches_topic), timeout=CALL_S)
    error = raised.value
    info = error_info(error)
    after = await probe.described(bad_batches_topic, leader)

    assert (error.code(), info.reason, info.domain) == (status, reason, "strandline")
    assert info.metadata["code"] == str(error_pb2.ErrorCode.Value(f"ERROR_CODE_{reason}"))
    assert info.metadata["outcome"] == "not_appended"
    assert info.metadata["remedy"]
    assert [word for word in words if word not in (error.details() or "")] == [], error.details()
    assert after.log_end_offset == 0


async def test_a_malformed_stream_message_does_not_end_the_stream(probe: Probe, topic: str) -> None:
    """On ProduceStream a rejected message is answered under its correlation id, and the next one is written."""
    await probe.create_topic(topic)
    stream = probe.leader_service(await probe.leader(topic)).ProduceStream(timeout=CALL_S)
    for correlation_id, request in enumerate([acks_two(topic), produce_request(topic, SOUND)], start=7):
        await stream.write(
            pb.ProduceStreamRequest(
                correlation_id=correlation_id, acks=request.acks, timeout_ms=3_000, topic_data=request.topic_data
            )
        )
    answers = {}
    for _ in range(2):
        answer = await stream.read()
        assert isinstance(answer, pb.ProduceStreamResponse)
        answers[answer.correlation_id] = answer
    stream.cancel()

    assert answers[7].error_code == error_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS
    assert "acks 2" in answers[7].error_message
    assert answers[8].error_code == 0
    assert answers[8].responses[0].partition_responses[0].base_offset == 0


# Invalid requests to the controller: impossible topics, and processes with a false identity.


OBSERVER = 4


def topic_request(name: str = "never-made", **fields: object) -> pb_controller.CreatableTopic:
    """A topic request that is valid except for one field."""
    given: dict[str, object] = {"name": name, "num_partitions": 1, "replication_factor": 3, **fields}
    return pb_controller.CreatableTopic(**given)  # type: ignore[arg-type]


def assigned(*replicas: list[int]) -> dict[str, object]:
    """Explicit assignments instead of numbers."""
    rows = [
        pb_controller.ReplicaAssignment(partition_index=index, node_ids=nodes) for index, nodes in enumerate(replicas)
    ]
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
    probe: Probe, wanted: pb_controller.CreatableTopic, name: str, words: tuple[str, ...]
) -> None:
    """An impossible topic is rejected with its own code, field and rule, and does not exist afterwards."""
    answer = await probe.controller.CreateTopics(pb_controller.CreateTopicsRequest(topics=[wanted]), timeout=CALL_S)
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
    again = pb_controller.CreateTopicsRequest(topics=[topic_request(topic)])
    answer = await probe.controller.CreateTopics(again, timeout=CALL_S)

    assert answer.topics[0].error_code == error_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS
    assert f"'{topic}'" in answer.topics[0].error_message
    assert (await probe.topic(topic)).topic_id == created.topic_id


async def test_partitions_only_grow(probe: Probe, topic: str) -> None:
    """Fewer partitions, or as many, are rejected; more are created."""
    await probe.create_topic(topic, partitions=2)
    codes = []
    for count in (1, 2, 3):
        growing = pb_controller.GrowingTopic(name=topic, count=count)
        answer = await probe.controller.CreatePartitions(
            pb_controller.CreatePartitionsRequest(topics=[growing]), timeout=CALL_S
        )
        codes.append(answer.results[0].error_code)
    await probe.in_sync(topic)

    assert codes == [error_pb2.ERROR_CODE_INVALID_PARTITIONS] * 2 + [0]
    assert len((await probe.topic(topic)).partitions) == 3


async def test_a_topic_made_anew_under_its_name_is_another_log(probe: Probe, topic: str) -> None:
    """A topic that was deleted and created again has another id and is empty; its old id is unknown (M63)."""
    first = await probe.create_topic(topic)
    await append(probe, topic, b"old")
    reference = partition_pb2.TopicReference(name=topic)
    await probe.controller.DeleteTopics(pb_controller.DeleteTopicsRequest(topics=[reference]), timeout=CALL_S)
    second = await probe.create_topic(topic)
    offset = await append(probe, topic, b"new")
    old = partition_pb2.TopicReference(topic_id=first.topic_id)
    described = await probe.controller.DescribeTopics(pb_controller.DescribeTopicsRequest(topics=[old]), timeout=CALL_S)
    both = partition_pb2.TopicReference(name=topic, topic_id=first.topic_id)
    disagreeing = await probe.controller.DescribeTopics(
        pb_controller.DescribeTopicsRequest(topics=[both]), timeout=CALL_S
    )
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
    request = pb_controller.HeartbeatRequest(node_id=1, node_epoch=node.node_epoch - 1, cluster_id=metadata.cluster_id)
    answer = await probe.controller.Heartbeat(request, timeout=CALL_S)

    assert answer.error_code == error_pb2.ERROR_CODE_STALE_BROKER_EPOCH
    assert f"node_epoch {node.node_epoch - 1}" in answer.error_message
    assert "must stop" in answer.error_message


async def test_a_heartbeat_of_nobody_is_refused(probe: Probe) -> None:
    """A heartbeat of a node that never registered is rejected as such."""
    request = pb_controller.HeartbeatRequest(node_id=77, node_epoch=1, cluster_id=(await probe.metadata()).cluster_id)
    answer = await probe.controller.Heartbeat(request, timeout=CALL_S)

    assert answer.error_code == error_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED
    assert "node 77 is not registered" in answer.error_message


def proposal(
    metadata: metadata_pb2.ClusterMetadata, topic: metadata_pb2.TopicMetadata, isr: list[int]
) -> pb_controller.AlterPartitionRequest:
    """A proposal the leader could send; its sequence is far below any real one, so that it fences no later one."""
    now = topic.partitions[0]
    row = pb_controller.AlterPartitionProposal(
        partition_index=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        new_isr_with_epochs=[pb_controller.IsrMember(node_id=node_id) for node_id in isr],
    )
    return pb_controller.AlterPartitionRequest(
        node_id=now.leader_id,
        node_epoch=next(node.node_epoch for node in metadata.nodes if node.node_id == now.leader_id),
        cluster_id=metadata.cluster_id,
        controller_epoch=metadata.controller_epoch,
        request_sequence=-1,
        topics=[pb_controller.AlterPartitionTopic(topic_id=topic.topic_id, partitions=[row])],
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


def registration(cluster_id: str | None, **fields: object) -> pb_controller.RegisterNodeRequest:
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
    return pb_controller.RegisterNodeRequest(**given)  # type: ignore[arg-type]


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
