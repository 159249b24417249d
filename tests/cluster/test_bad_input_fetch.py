"""Fetches of a broken consumer, or of a process with a false replica identity, and the exact answers.

A replica's Fetch is a write to the commit decision: after every rejected one the remote LEO must be unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import grpc
import pytest
import pytest_asyncio
from raw_records import append, error_info, fetch
from running_cluster import CALL_S, Probe
from settled_logs import assert_settled

from strandline.v1 import error_pb2, leader_service_pb2 as pb, metadata_pb2, partition_pb2

OBSERVER = 4
TOPIC, NARROW = "bad-fetches", "bad-fetches-narrow"
RECORDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A topic with a few records whose leader has an epoch above 0, and one that node 3 does not hold."""

    probe: Probe
    cluster_id: str
    topic_id: str
    narrow_id: str
    now: metadata_pb2.PartitionMetadata
    follower: metadata_pb2.NodeMetadata

    def replica_fetch(self, **fields: int | None) -> pb.FetchRequest:
        """The follower's own fetch at its LEO; fields of the partition may be overridden."""
        row: dict[str, int | None] = {
            "partition": 0,
            "fetch_offset": RECORDS,
            "current_leader_epoch": self.now.leader_epoch,
            "last_fetched_epoch": self.now.leader_epoch,
            "log_start_offset": 0,
            **fields,
        }
        who = partition_pb2.ReplicaState(replica_id=self.follower.node_id, replica_epoch=self.follower.node_epoch)
        asked = partition_pb2.FetchTopic(topic_id=self.topic_id, partitions=[partition_pb2.FetchPartition(**row)])
        return pb.FetchRequest(cluster_id=self.cluster_id, replica_state=who, max_wait_ms=0, topics=[asked])

    async def remote_leos(self) -> list[tuple[int, int, int]]:
        """(replica, remote LEO, node epoch) as the leader has them."""
        described = await self.probe.described(TOPIC, self.now.leader_id)
        return [(row.replica_id, row.log_end_offset, row.node_epoch) for row in described.replicas]


@pytest_asyncio.fixture
async def scene(probe: Probe) -> AsyncIterator[Scene]:
    """The scene, created once; afterwards the topics must be as complete as before."""
    if TOPIC not in {known.name for known in (await probe.metadata()).topics}:
        await probe.create_topic(NARROW, assignment=[1, 2])
        await probe.create_topic(TOPIC, assignment=[1, 2, 3])
        probe.local.kill_node(1)
        await probe.restart(1)
        await probe.everybody()
        await probe.in_sync(TOPIC)
        await append(probe, TOPIC, *(b"%d" % number for number in range(RECORDS)))
    await assert_settled(probe, TOPIC)
    now = await probe.partition(TOPIC)
    yield Scene(
        probe=probe,
        cluster_id=(await probe.metadata()).cluster_id,
        topic_id=(await probe.topic(TOPIC)).topic_id,
        narrow_id=(await probe.topic(NARROW)).topic_id,
        now=now,
        follower=await probe.node(next(node_id for node_id in (1, 2, 3) if node_id != now.leader_id)),
    )
    assert await assert_settled(probe, TOPIC) == RECORDS
    assert (await probe.partition(TOPIC)).partition_epoch == now.partition_epoch


CONSUMERS = {
    "far above the log's end": (
        {"offset": RECORDS + 1_000},
        "OFFSET_OUT_OF_RANGE",
        (f"fetch_offset {RECORDS + 1_000}", f"LEO {RECORDS}", "ListOffsets"),
    ),
    "negative offset": ({"offset": -5}, "INVALID_REQUEST", ("fetch_offset is -5", "must be 0 or more")),
    "partition out of range": (
        {"partition": 7},
        "UNKNOWN_TOPIC_OR_PARTITION",
        ("has no partition 7", "DescribeTopics"),
    ),
    "newer leader epoch": (
        {"epoch": 1_000},
        "UNKNOWN_LEADER_EPOCH",
        ("current_leader_epoch 1000 is newer", "ask again"),
    ),
    "older leader epoch": (
        {"epoch": 0},
        "FENCED_LEADER_EPOCH",
        ("current_leader_epoch 0 is older", "refresh metadata"),
    ),
}


@pytest.mark.parametrize(("asked", "name", "words"), CONSUMERS.values(), ids=CONSUMERS.keys())
async def test_a_consumers_bad_fetch(scene: Scene, asked: dict[str, int], name: str, words: tuple[str, ...]) -> None:
    """A consumer's bad fetch is rejected per partition, with field, rule and remedy, and without records."""
    answer = await fetch(scene.probe, scene.now.leader_id, TOPIC, **asked)

    assert error_pb2.ErrorCode.Name(answer.error_code) == f"ERROR_CODE_{name}", answer.error_message
    assert [word for word in words if word not in answer.error_message] == [], answer.error_message
    assert answer.records == b""
    assert not answer.HasField("high_watermark")


async def test_a_consumer_at_the_end_waits_instead(scene: Scene) -> None:
    """The end of the log is a valid offset: no records, no error."""
    answer = await fetch(scene.probe, scene.now.leader_id, TOPIC, RECORDS)

    assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", RECORDS)


async def test_unary_fetch_has_no_sessions(scene: Scene) -> None:
    """A Kafka fetch session is rejected as a whole, and the error names the remedy."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await scene.probe.leader_service(1).Fetch(pb.FetchRequest(session_id=5), timeout=CALL_S)

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(raised.value).reason == "FETCH_SESSION_ID_NOT_FOUND"
    assert "session_id 5" in (raised.value.details() or "")
    assert "session_id 0" in error_info(raised.value).metadata["remedy"]


Change = Callable[[Scene], pb.FetchRequest]


def changed(**fields: int | None) -> Change:
    """The follower's fetch with other fields in its partition."""
    return lambda scene: scene.replica_fetch(**fields)


def not_assigned(scene: Scene) -> pb.FetchRequest:
    """Node 3 fetches a topic of which it holds no replica."""
    request = scene.replica_fetch(fetch_offset=0, last_fetched_epoch=None, current_leader_epoch=None)
    request.replica_state.replica_id = 3
    request.topics[0].topic_id = scene.narrow_id
    return request


def never_registered(scene: Scene) -> pb.FetchRequest:
    """A node that never registered."""
    request = scene.replica_fetch()
    request.replica_state.replica_id = 99
    return request


def stale_node_epoch(scene: Scene) -> pb.FetchRequest:
    """An earlier process of the follower."""
    request = scene.replica_fetch()
    request.replica_state.replica_epoch -= 1
    return request


def unknown_id(scene: Scene) -> pb.FetchRequest:
    """A topic id that was never assigned."""
    request = scene.replica_fetch()
    request.topics[0].topic_id = "00000000-0000-4000-8000-000000000000"
    return request


REPLICAS: dict[str, tuple[Change, str, tuple[str, ...]]] = {
    "never registered": (never_registered, "UNKNOWN_LEADER_EPOCH", ("node 99 is not a replica", "refresh metadata")),
    "stale node epoch": (stale_node_epoch, "NOT_LEADER_OR_FOLLOWER", ("replica_epoch", "older incarnation", "newest")),
    "older leader epoch": (changed(current_leader_epoch=0), "FENCED_LEADER_EPOCH", ("is older", "refresh metadata")),
    "newer leader epoch": (changed(current_leader_epoch=999), "UNKNOWN_LEADER_EPOCH", ("is newer", "ask again")),
    "no lineage": (changed(last_fetched_epoch=None), "INVALID_REQUEST", ("last_fetched_epoch is absent", "log_start")),
    "negative offset": (changed(fetch_offset=-1), "INVALID_REQUEST", ("fetch_offset is -1", "0 or more")),
    "partition out of range": (changed(partition=9), "UNKNOWN_TOPIC_OR_PARTITION", ("has no partition 9",)),
    "unknown topic id": (unknown_id, "UNKNOWN_TOPIC_ID", ("no topic has the id", "refresh metadata")),
}


@pytest.mark.parametrize(("build", "name", "words"), REPLICAS.values(), ids=REPLICAS.keys())
async def test_a_replicas_bad_fetch_counts_for_nothing(
    scene: Scene, build: Change, name: str, words: tuple[str, ...]
) -> None:
    """A replica's bad fetch is rejected per partition, and no remote LEO moves."""
    before = await scene.remote_leos()
    answer = await scene.probe.leader_service(scene.now.leader_id).Fetch(build(scene), timeout=CALL_S)
    row = answer.responses[0].partitions[0]

    assert error_pb2.ErrorCode.Name(row.error_code) == f"ERROR_CODE_{name}", row.error_message
    assert [word for word in words if word not in row.error_message] == [], row.error_message
    assert row.records == b""
    assert await scene.remote_leos() == before


async def test_a_node_that_is_not_assigned_is_refused(scene: Scene) -> None:
    """A registered node without a replica of a partition may not fetch it (T10); the answer hides the ISR."""
    narrow = await scene.probe.partition(NARROW)
    request = not_assigned(scene)
    request.replica_state.replica_epoch = (await scene.probe.node(3)).node_epoch
    request.topics[0].partitions[0].current_leader_epoch = narrow.leader_epoch
    answer = await scene.probe.leader_service(narrow.leader_id).Fetch(request, timeout=CALL_S)
    row = answer.responses[0].partitions[0]
    described = await scene.probe.described(NARROW, narrow.leader_id)

    assert row.error_code == error_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH
    assert "node 3 is not a replica" in row.error_message
    assert {replica.replica_id for replica in described.replicas} - {OBSERVER} == {1, 2}


async def test_a_replica_far_above_the_log_is_reported_where_it_diverges(scene: Scene) -> None:
    """At LEO + 1000 a replica gets the epoch's end, without error or records (T8), and is not counted (TR12)."""
    before = await scene.remote_leos()
    request = scene.replica_fetch(fetch_offset=RECORDS + 1_000)
    answer = await scene.probe.leader_service(scene.now.leader_id).Fetch(request, timeout=CALL_S)
    row = answer.responses[0].partitions[0]

    assert (row.error_code, row.records) == (0, b"")
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (scene.now.leader_epoch, RECORDS)
    assert await scene.remote_leos() == before


def without_own_epoch(scene: Scene) -> pb.FetchRequest:
    """A fetch without its own node epoch."""
    request = scene.replica_fetch()
    request.replica_state.ClearField("replica_epoch")
    return request


def without_cluster(scene: Scene) -> pb.FetchRequest:
    """A fetch without a cluster id."""
    request = scene.replica_fetch()
    request.ClearField("cluster_id")
    return request


def of_another_cluster(scene: Scene) -> pb.FetchRequest:
    """A fetch with another cluster's id."""
    request = scene.replica_fetch()
    request.cluster_id = "another-cluster"
    return request


def by_name_alone(scene: Scene) -> pb.FetchRequest:
    """A fetch that names the topic only by its name, which may be assigned again."""
    request = scene.replica_fetch()
    request.topics[0].topic, request.topics[0].topic_id = TOPIC, ""
    return request


async def test_a_replica_that_does_not_name_its_leader_epoch_is_refused(scene: Scene) -> None:
    """A partition fetched without current_leader_epoch is rejected, and no remote LEO moves (M26)."""
    before = await scene.remote_leos()
    request = scene.replica_fetch(current_leader_epoch=None)
    answer = await scene.probe.leader_service(scene.now.leader_id).Fetch(request, timeout=CALL_S)
    row = answer.responses[0].partitions[0]

    assert row.error_code == error_pb2.ERROR_CODE_INVALID_REQUEST
    assert "current_leader_epoch is absent" in row.error_message
    assert await scene.remote_leos() == before


WHOLE = [
    (without_own_epoch, "INVALID_REQUEST", ("replica_epoch", "leave it out")),
    (without_cluster, "INVALID_REQUEST", ("cluster_id is absent", "must give it")),
    (of_another_cluster, "INCONSISTENT_CLUSTER_ID", ("'another-cluster'", "connect to the cluster")),
    (by_name_alone, "INVALID_REQUEST", ("without topic_id", "must give it")),
]


@pytest.mark.parametrize(("build", "reason", "words"), WHOLE, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_replica_that_does_not_say_enough(
    scene: Scene, build: Change, reason: str, words: tuple[str, ...]
) -> None:
    """A replica's fetch without its fencing fields is rejected as a whole, and no remote LEO moves."""
    before = await scene.remote_leos()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await scene.probe.leader_service(scene.now.leader_id).Fetch(build(scene), timeout=CALL_S)
    expected = "FAILED_PRECONDITION" if reason == "INCONSISTENT_CLUSTER_ID" else "INVALID_ARGUMENT"
    details = raised.value.details() or ""

    assert (raised.value.code().name, error_info(raised.value).reason) == (expected, reason)
    assert [word for word in words if word not in details] == [], details
    assert await scene.remote_leos() == before
