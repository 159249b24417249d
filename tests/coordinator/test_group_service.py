"""GroupService over real nodes, and what a steady heartbeat costs."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from controller_stub import ControllerStub, topic
from counted_calls import CountedCalls
from nodes_in_process import TOPIC, TOPIC_ID, running_nodes

from strandline.core.coordinator.internal_topics import GROUP_STATE, partition_of
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.types import TopicPartition
from strandline.node.node import ReplicaNode
from strandline.node.shard_calls import PAUSE_MS, StateTopic
from strandline.rpc.channels import open_channel
from strandline.rpc.status import refusal_of
from strandline.v1 import group_service_pb2 as pb, group_service_pb2_grpc as pb_grpc

STATE_ID = "5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a01"
THREE = (1, 2, 3)


def _controller(*, with_state: bool = True, replicas: tuple[int, ...] = THREE) -> ControllerStub:
    ordinary = topic(TOPIC, TOPIC_ID, replicas, partitions=2, min_isr=2)
    state = topic(GROUP_STATE, STATE_ID, replicas, partitions=4, min_isr=2)
    return ControllerStub(ordinary, state) if with_state else ControllerStub(ordinary)


@asynccontextmanager
async def _groups(node: ReplicaNode) -> AsyncIterator[Any]:
    assert node.client is not None
    async with open_channel(node.client) as channel:
        yield pb_grpc.GroupServiceStub(channel)


def _commit(group: str = "g", offsets: dict[int, int] | None = None, **fields: Any) -> pb.OffsetCommitRequest:
    request = pb.OffsetCommitRequest(group_id=group, **fields)
    row = request.topics.add(name=TOPIC)
    for index, offset in (offsets or {0: 5}).items():
        row.partitions.add(partition_index=index, committed_offset=offset, committed_metadata=f"at {offset}")
    return request


def _fetch(*groups: str, stable: bool = True, **fields: Any) -> pb.OffsetFetchRequest:
    return pb.OffsetFetchRequest(groups=[{"group_id": g, **fields} for g in groups], require_stable=stable)


def _codes(answer: pb.OffsetCommitResponse) -> list[int]:
    return [int(row.error_code) for topic_ in answer.topics for row in topic_.partitions]


def _offsets(group: pb.OffsetFetchGroupResponse) -> dict[int, int]:
    return {row.partition_index: row.committed_offset for t in group.topics for row in t.partitions}


async def test_a_committed_offset_is_given_back(tmp_path: Path) -> None:
    """With text and time, by the node that coordinates the group; a partition without one has none."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        assert _codes(await stub.OffsetCommit(_commit(offsets={0: 5}), timeout=5)) == [0]
        answer = await stub.OffsetFetch(_fetch("g", topics={"topics": [{"topic": TOPIC, "partitions": [0, 1]}]}))

    (group,) = answer.groups
    with_offset, without = group.topics[0].partitions
    assert (with_offset.committed_offset, with_offset.metadata) == (5, "at 5")
    assert with_offset.commit_timestamp_ms > 1_700_000_000_000
    assert not without.HasField("committed_offset") and without.error_code == 0


async def test_what_is_answered_is_on_every_replica(tmp_path: Path) -> None:
    """The logs of the state's partition are equal byte for byte, and hold the commit."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        await stub.OffsetCommit(_commit(), timeout=5)
        tp = TopicPartition(STATE_ID, partition_of("g", 4))
        ends = [node.driver.core.describe_replica(tp).leo for node in nodes]  # type: ignore[union-attr]
        name = f"{GROUP_STATE}-{tp.partition}/{0:020}.log"
        files = [(tmp_path / f"node-{n}" / name).read_bytes() for n in THREE]

    assert ends == [1, 1, 1]
    assert files[0] == files[1] == files[2] != b""


async def test_a_node_that_does_not_coordinate_says_who_does(tmp_path: Path) -> None:
    """NOT_COORDINATOR with the coordinator's address, for a commit and for a fetch."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[1]) as stub:
        committed = await stub.OffsetCommit(_commit(), timeout=5)
        fetched = await stub.OffsetFetch(_fetch("g"))
        home = nodes[0].client

    assert home is not None
    assert _codes(committed) == [ErrorCode.NOT_COORDINATOR]
    assert committed.topics[0].partitions[0].outcome == pb.COMMIT_OUTCOME_NOT_APPENDED
    assert fetched.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    for hint in (committed.current_coordinator, fetched.groups[0].current_coordinator):
        assert (hint.leader_id, hint.endpoint.port) == (1, home.port)


async def test_any_node_names_the_coordinator(tmp_path: Path) -> None:
    """FindCoordinator answers key by key; an id that no group can have is refused by itself."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[2]) as stub:
        answer = await stub.FindCoordinator(pb.FindCoordinatorRequest(coordinator_keys=["g", " "]))
        home = nodes[0].client

    found, refused = answer.coordinators
    assert home is not None
    assert (found.key, found.node_id, found.port, found.coordinator_epoch) == ("g", 1, home.port, 0)
    assert (refused.error_code, refused.HasField("node_id")) == (ErrorCode.INVALID_GROUP_ID, False)


async def test_a_topic_that_is_not_there_fails_alone(tmp_path: Path) -> None:
    """Of a commit for three topics, the known one counts."""
    request = _commit(offsets={0: 7})
    request.topics.add(name="nowhere").partitions.add(partition_index=0, committed_offset=1)
    request.topics.add(topic_id=TOPIC_ID).partitions.add(partition_index=9, committed_offset=1)
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        codes = _codes(await stub.OffsetCommit(request, timeout=5))
        fetched = await stub.OffsetFetch(_fetch("g"))

    assert sorted(codes) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert _offsets(fetched.groups[0]) == {0: 7}


async def test_groups_are_answered_one_by_one(tmp_path: Path) -> None:
    """Several groups in one fetch, each with its own offsets or its own error."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        for number, group in enumerate(("a", "b", "c")):
            await stub.OffsetCommit(_commit(group, {0: number}), timeout=5)
        answer = await stub.OffsetFetch(_fetch("c", "a", " ", "none", stable=False))

    assert [_offsets(group) for group in answer.groups] == [{0: 2}, {0: 0}, {}, {}]
    assert [group.error_code for group in answer.groups] == [0, 0, ErrorCode.INVALID_GROUP_ID, 0]


async def test_offsets_survive_the_restart_of_all_nodes(tmp_path: Path) -> None:
    """The next processes load them from the log."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        await stub.OffsetCommit(_commit(offsets={0: 5, 1: 6}), timeout=5)
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        answer = await _until_served(stub)

    assert _offsets(answer.groups[0]) == {0: 5, 1: 6}


async def _until_served(stub: Any) -> pb.OffsetFetchResponse:
    while True:
        answer: pb.OffsetFetchResponse = await stub.OffsetFetch(_fetch("g"), timeout=5)
        if answer.groups[0].error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return answer


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.OffsetCommitRequest(group_id="g"), ErrorCode.INVALID_REQUEST),
        (_commit(""), ErrorCode.INVALID_GROUP_ID),
        (_commit("x" * 250), ErrorCode.INVALID_GROUP_ID),
        (_commit(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (pb.OffsetFetchRequest(), ErrorCode.INVALID_REQUEST),
        (_fetch("g", "g"), ErrorCode.INVALID_REQUEST),
        (pb.FindCoordinatorRequest(), ErrorCode.INVALID_REQUEST),
        (pb.OffsetDeleteRequest(group_id="g"), ErrorCode.INVALID_REQUEST),
        (pb.DeleteGroupsRequest(groups_names=["g", "g"]), ErrorCode.INVALID_REQUEST),
        (pb.DescribeGroupsRequest(), ErrorCode.INVALID_REQUEST),
        (pb.ListGroupsRequest(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (pb.FindCoordinatorRequest(coordinator_keys=["g"], key_type=2), ErrorCode.INVALID_REQUEST),  # type: ignore[arg-type]
    ],
)
async def test_a_malformed_request_is_refused_whole(tmp_path: Path, request_: Any, code: ErrorCode) -> None:
    """The status carries the code, and the sentence names the field."""
    method = type(request_).__name__.removesuffix("Request")
    async with running_nodes(_controller(replicas=(1,)), tmp_path) as nodes, _groups(nodes[0]) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await getattr(stub, method)(request_, timeout=5)

    assert refusal_of(error.value).code is code


def _beat(member: str, epoch: int, *, sequence: int, **fields: Any) -> pb.ConsumerGroupHeartbeatRequest:
    request = pb.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, sequence=sequence, client_id="tests", **fields
    )
    if epoch == 0:
        request.rebalance_timeout_ms = 5_000
        request.subscribed_topic_names.names.append(TOPIC)
        request.topic_partitions.SetInParent()
    return request


def _holds(*partitions: int) -> Any:
    return {"topics": [{"topic_id": TOPIC_ID, "partitions": partitions}]}


def _assigned(answer: pb.ConsumerGroupHeartbeatResponse) -> list[int]:
    return [index for topic_ in answer.assignment.topics for index in topic_.partitions]


async def _until(stub: Any, beat: Any, wanted: Any) -> pb.ConsumerGroupHeartbeatResponse:
    """Send the heartbeats that ``beat`` makes, of rising sequence, until the answer is as ``wanted``."""
    async with asyncio.timeout(20):
        sequence = 100
        while True:
            sequence += 1
            answer: pb.ConsumerGroupHeartbeatResponse = await stub.ConsumerGroupHeartbeat(beat(sequence), timeout=5)
            if wanted(answer):
                return answer
            await asyncio.sleep(0.02)


async def test_members_share_a_topic_and_one_takes_over_from_the_other(tmp_path: Path) -> None:
    """The first has both partitions, gives one up when a second joins, and has it again when that leaves."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        first = await stub.ConsumerGroupHeartbeat(_beat("m1", 0, sequence=1), timeout=5)
        assert (first.error_code, first.member_epoch, first.coordinator_epoch) == (0, 1, 0)
        assert first.HasField("coordinator_epoch")
        assert _assigned(first) == [0, 1]

        joined = await stub.ConsumerGroupHeartbeat(_beat("m2", 0, sequence=1), timeout=5)
        assert joined.error_code == 0
        asked = await _until(
            stub,
            lambda n: _beat("m1", 1, sequence=n, topic_partitions=_holds(0, 1)),
            lambda a: a.HasField("assignment") and len(_assigned(a)) == 1,
        )
        (kept,) = _assigned(asked)
        moved = await stub.ConsumerGroupHeartbeat(
            _beat("m1", 1, sequence=900, topic_partitions=_holds(kept)), timeout=5
        )
        assert moved.member_epoch == 2
        got = await _until(
            stub, lambda n: _beat("m2", joined.member_epoch, sequence=n, topic_partitions=_holds()), _assigned
        )
        assert _assigned(got) == [1 - kept]

        described = await stub.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"]), timeout=5)
        listed = await stub.ListGroups(pb.ListGroupsRequest(), timeout=5)
        left = await stub.ConsumerGroupHeartbeat(_beat("m2", -1, sequence=950), timeout=5)
        again = await _until(stub, lambda n: _beat("m1", 2, sequence=1000 + n), lambda a: len(_assigned(a)) == 2)

    (group,) = described.groups
    assert [m.member_id for m in group.members] == ["m1", "m2"]
    assert {m.client_id for m in group.members} == {"tests"}
    assert {m.client_host for m in group.members} == {"127.0.0.1"}
    assert sorted(i for m in group.members for t in m.assignment for i in t.partitions) == [0, 1]
    assert [(g.group_id, g.group_type) for g in listed.groups] == [("g", "Consumer")]
    assert left.member_epoch == -1
    assert _assigned(again) == [0, 1]


async def test_a_member_commits_for_what_it_has_and_nobody_else_does(tmp_path: Path) -> None:
    """By its epoch; a commit without a member is refused while there is one; nothing of the group can be deleted."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        joined = await stub.ConsumerGroupHeartbeat(_beat("m1", 0, sequence=1), timeout=5)
        member = {"member_id": "m1", "generation_id_or_member_epoch": joined.member_epoch}
        own = _codes(await stub.OffsetCommit(_commit(offsets={0: 1}, **member), timeout=5))
        nobodys = _codes(await stub.OffsetCommit(_commit(offsets={0: 2}), timeout=5))
        old = _codes(await stub.OffsetCommit(_commit(offsets={0: 3}, **{**member, "generation_id_or_member_epoch": 9})))
        deleted = await stub.DeleteGroups(pb.DeleteGroupsRequest(groups_names=["g", "none"]), timeout=5)
        topics = [{"topic": TOPIC, "partitions": [0]}]
        offset = await stub.OffsetDelete(pb.OffsetDeleteRequest(group_id="g", topics=topics), timeout=5)

    assert (own, nobodys, old) == ([0], [ErrorCode.UNKNOWN_MEMBER_ID], [ErrorCode.STALE_MEMBER_EPOCH])
    assert [r.error_code for r in deleted.results] == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    assert offset.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


async def test_an_empty_group_is_deleted_with_its_offsets(tmp_path: Path) -> None:
    """OffsetDelete takes one offset, DeleteGroups the rest and the group."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[0]) as stub:
        await stub.OffsetCommit(_commit(offsets={0: 1, 1: 2}), timeout=5)
        topics = [{"topic": TOPIC, "partitions": [0]}, {"topic": "nowhere", "partitions": [0]}]
        offset = await stub.OffsetDelete(pb.OffsetDeleteRequest(group_id="g", topics=topics), timeout=5)
        left = _offsets((await stub.OffsetFetch(_fetch("g"))).groups[0])
        deleted = await stub.DeleteGroups(pb.DeleteGroupsRequest(groups_names=["g"]), timeout=5)
        gone = await stub.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g", ""]), timeout=5)

    assert [row.error_code for t in offset.topics for row in t.partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (left, deleted.results[0].error_code) == ({1: 2}, 0)
    assert [g.error_code for g in gone.groups] == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID]


async def test_a_heartbeat_elsewhere_is_pointed_to_the_coordinator(tmp_path: Path) -> None:
    """NOT_COORDINATOR in the answer, not as a failed call, with the coordinator's address."""
    async with running_nodes(_controller(), tmp_path, THREE) as nodes, _groups(nodes[1]) as stub:
        answer = await stub.ConsumerGroupHeartbeat(_beat("m1", 0, sequence=1), timeout=5)
        listed = await stub.ListGroups(pb.ListGroupsRequest(), timeout=5)

    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert answer.current_coordinator.leader_id == 1
    assert (len(listed.groups), listed.error_code) == (0, 0)


async def test_the_topic_is_asked_for_when_somebody_needs_it(tmp_path: Path) -> None:
    """Without it COORDINATOR_NOT_AVAILABLE, nothing written, and the controller was asked once for all calls."""
    asked: list[str] = []

    async def create(name: str) -> Refusal | None:
        asked.append(name)
        return None

    async with running_nodes(_controller(with_state=False, replicas=(1,)), tmp_path) as nodes:
        nodes[0].groups.shards.state_topic._create = create
        async with _groups(nodes[0]) as stub:
            committed = [await stub.OffsetCommit(_commit(), timeout=5) for _ in range(3)]
            found = await stub.FindCoordinator(pb.FindCoordinatorRequest(coordinator_keys=["g"]))

    assert [_codes(answer) for answer in committed] == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]] * 3
    assert {row.outcome for a in committed for t in a.topics for row in t.partitions} == {
        pb.COMMIT_OUTCOME_NOT_APPENDED
    }
    assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert asked == [GROUP_STATE]


async def test_why_the_controller_does_not_create_it_is_passed_on() -> None:
    """The next caller is given the controller's sentence; the controller is asked again after a pause."""
    now = [0]
    why = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "2 nodes are alive")
    asked: list[str] = []

    async def create(name: str) -> Refusal | None:
        asked.append(name)
        if len(asked) > 1:
            raise Refused(ErrorCode.NETWORK_EXCEPTION, "no controller")
        return why

    state = StateTopic(GROUP_STATE, create, lambda: now[0])
    state.want()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert state.want() is why
    now[0] += PAUSE_MS
    state.want()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert "no controller" in state.want().message
    assert len(asked) == 2
    await state.close()


# What a heartbeat that changes nothing costs a node between gRPC and the answer it waits for, counted in calls.


FEW = 80
"""Calls of Python functions from the handler's begin until it waits for the read barrier, which it begins itself. It
was 129 when each heartbeat was decided and decoded as one that may change something."""


@types.coroutine
def _counting_until_it_waits(handler: Coroutine[Any, Any, Any], calls: list[str]) -> Generator[Any, Any, Any]:
    """Runs ``handler``; notes its calls of functions up to the first time that it waits."""
    with CountedCalls() as noted:
        awaited = handler.send(None)
    calls += noted
    try:
        while True:
            yield awaited
            awaited = handler.send(None)
    except StopIteration as ended:
        return ended.value


async def test_a_steady_heartbeat_makes_few_calls_until_it_waits(tmp_path: Path) -> None:
    """The member has what it is to have and says nothing else; what gRPC calls by itself is not in the count."""
    controller = ControllerStub(
        topic(TOPIC, TOPIC_ID, THREE, partitions=2, min_isr=2),
        topic(GROUP_STATE, STATE_ID, THREE, partitions=4, min_isr=2),
    )
    context: Any = SimpleNamespace(time_remaining=lambda: 5.0, peer=lambda: "ipv4:127.0.0.1:1")
    async with running_nodes(controller, tmp_path, THREE) as nodes:
        groups = nodes[0].groups
        join = pb.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            sequence=1,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names={"names": [TOPIC]},
            topic_partitions={},
        )
        joined = await groups.ConsumerGroupHeartbeat(join, context)
        counts: list[int] = []
        for sequence in (2, 3, 4):
            beat = pb.ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=joined.member_epoch,
                sequence=sequence,
                coordinator_epoch=joined.coordinator_epoch,
            )
            calls: list[str] = []
            answer = await _counting_until_it_waits(groups.ConsumerGroupHeartbeat(beat, context), calls)
            counts.append(len(calls))

    assert (answer.member_epoch, answer.HasField("assignment")) == (joined.member_epoch, False)
    # The first may show what the join has changed, if no tick has come before it.
    assert min(counts) <= FEW, (counts, calls)
