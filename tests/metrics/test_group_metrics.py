"""Groups are counted by looking at them: rebalances with their cause and length, loads of shards, states."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, running_nodes
from scraping import LOOPBACK, scraped
from tests.core.groups.groups_alone import GroupsAlone, Topics

from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.coordinator.shard import ShardState
from strandline.core.groups.machine import GroupMachine
from strandline.core.types import LeaderEpoch, TopicPartition
from strandline.metrics.figures import Spread
from strandline.metrics.group_figures import GroupLooks
from strandline.rpc.channels import open_channel
from strandline.v1 import group_service_pb2 as pb
from strandline.v1 import group_service_pb2_grpc as pb_grpc

LOOK_MS = 250


class Looked:
    """One shard that is looked at as a node looks at its own."""

    def __init__(self, groups: GroupsAlone, state: ShardState = ShardState.ACTIVE) -> None:
        self.groups = groups
        self.looks = GroupLooks()
        self.shards: list[Any] = [shard_of(groups.machine, state)]

    def look(self, after_ms: int = LOOK_MS) -> None:
        """Let time pass, then look."""
        self.groups.now_ms += after_ms
        self.looks.look(self.shards, self.groups.now_ms)

    def values(self) -> dict[str, float]:
        """The series by name and label; of a histogram its number and its sum."""
        found: dict[str, float] = {}
        for family, value, labels in self.looks.figures(self.shards, self.groups.now_ms):
            name = "".join([family.name, *(f" {label}" for label in labels)])
            if isinstance(value, Spread):
                found |= {f"{name} count": value.cumulative[-1], f"{name} sum": value.total}
            else:
                found[name] = value
        return found


def shard_of(machine: GroupMachine, state: ShardState, epoch: int = 1) -> Any:
    """As much of a shard as is looked at."""
    leader = SimpleNamespace(
        log=SimpleNamespace(tp=TopicPartition("state", 0)), image=SimpleNamespace(leader_epoch=LeaderEpoch(epoch))
    )
    return SimpleNamespace(leader=leader, state=state, is_serving=state is ShardState.ACTIVE, machine=machine)


def looked() -> Looked:
    """A shard without groups, looked at once."""
    seen = Looked(GroupsAlone(Topics(foo=4)))
    seen.look()
    return seen


def test_a_rebalance_is_counted_once_with_what_began_it() -> None:
    """It lasts from the look that found the higher epoch to the one that found every member settled."""
    seen = looked()
    seen.groups.join("m1", "foo")
    seen.groups.settle()
    seen.look()
    seen.groups.join("m2", "foo")
    seen.look()
    seen.groups.join("m3", "foo")
    seen.look()
    during = seen.values()
    seen.groups.settle()
    seen.look()
    after = seen.values()

    assert during["group_rebalances_total join"] == after["group_rebalances_total join"] == 2
    assert during["groups assigning"] + during["groups reconciling"] == 1
    assert during["group_oldest_rebalance_seconds"] == LOOK_MS / 1_000
    assert (after["groups stable"], after["group_members"], after["group_oldest_rebalance_seconds"]) == (1, 3, 0)
    assert after["group_rebalance_seconds count"] == 2
    assert 2 * LOOK_MS / 1_000 <= after["group_rebalance_seconds sum"] < 1


def test_causes_are_told_apart() -> None:
    """A member that leaves, and a topic that grows, begin rebalances of their own."""
    seen = looked()
    for member_id in ("m1", "m2"):
        seen.groups.join(member_id, "foo")
    seen.groups.settle()
    seen.look()
    seen.groups.topics.put("foo", 6)
    seen.groups.tick()
    seen.look()
    seen.groups.settle()
    seen.look()
    seen.groups.beat("m2", -1)
    seen.look()
    seen.groups.settle("m1")
    seen.look()
    counted = {name: value for name, value in seen.values().items() if name.startswith("group_rebalances_total")}

    assert counted == {
        "group_rebalances_total join": 1,
        "group_rebalances_total interest": 1,
        "group_rebalances_total leave": 1,
    }


def test_what_a_new_coordinator_loads_is_no_rebalance() -> None:
    """Its load is timed, groups that were there are not counted, and one that rebalances is as old as its load."""
    before = GroupsAlone(Topics(foo=4))
    before.join("m1", "foo")
    before.settle()
    before.join("m2", "foo")
    before.tick(1)
    seen = Looked(before, ShardState.LOADING)
    seen.look()
    loading = seen.values()
    seen.look(2_000)
    seen.shards = [shard_of(before.machine, ShardState.ACTIVE)]
    seen.look(1_000)
    seen.look(5_000)
    served = seen.values()

    assert (loading["coordinator_shards loading"], loading["group_members"]) == (1, 0)
    assert (served["coordinator_shards active"], served["coordinator_shards loading"]) == (1, 0)
    assert (served["coordinator_load_seconds count"], served["coordinator_load_seconds sum"]) == (1, 3)
    assert served["group_rebalances_total join"] == 0
    assert served["group_oldest_rebalance_seconds"] == 5


def test_a_shard_that_is_led_elsewhere_is_forgotten() -> None:
    """Leading it again is another load; a rebalance that goes on elsewhere is nobody's here."""
    seen = looked()
    seen.groups.join("m1", "foo")
    seen.look()
    assert seen.values()["group_rebalances_total join"] == 1
    here, seen.shards = seen.shards, []
    seen.look(60_000)
    away = seen.values()
    seen.shards = [shard_of(here[0].machine, ShardState.ACTIVE, epoch=2)]
    seen.look()

    assert (away["group_oldest_rebalance_seconds"], away["group_members"], away["groups stable"]) == (0, 0, 0)
    assert seen.values()["coordinator_load_seconds count"] == 2


async def test_commits_are_counted_by_result(tmp_path: Path) -> None:
    """One for each partition: committed, or by the name of the error, also of a partition that does not exist."""
    state = topic(GROUP_STATE, "5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a01", (1,), partitions=2)
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)), state)
    request = pb.OffsetCommitRequest(group_id="g")
    row = request.topics.add(name=TOPIC)
    row.partitions.add(partition_index=0, committed_offset=5)
    row.partitions.add(partition_index=9, committed_offset=5)
    as_member = pb.OffsetCommitRequest(group_id="g", member_id="m", generation_id_or_member_epoch=3)
    as_member.topics.add(name=TOPIC).partitions.add(partition_index=0, committed_offset=6)
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK) as (node,):
        assert node.client is not None
        async with open_channel(node.client) as channel:
            stub: Any = pb_grpc.GroupServiceStub(channel)
            # Until its coordinators serve, a node does not know its groups, and rejects commits.
            while (await stub.ListGroups(pb.ListGroupsRequest(), timeout=5)).error_code:  # noqa: ASYNC110 - state
                await asyncio.sleep(0.01)
            await stub.OffsetCommit(request, timeout=5)
            await stub.OffsetCommit(as_member, timeout=5)
        seen = await scraped(node.metrics_address)

    assert seen.value("offset_commits_total", result="committed") == 1
    assert seen.value("offset_commits_total", result="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert seen.value("offset_commits_total", result="UNKNOWN_MEMBER_ID") == 1
    assert seen.value("coordinator_shards", state="active") == 2
    assert seen.value("groups", state="empty") == 1
