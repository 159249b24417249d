"""Groups are counted by what coordinators report: rebalances with their cause and length, loads; states are read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, running_nodes
from scraping import LOOPBACK, scraped
from tests.core.groups.groups_alone import GroupsAlone, Topics

from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.coordinator.machine import Reports
from strandline.core.coordinator.shard import ShardState
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.reporting import HOUR_MS, GroupReporting
from strandline.core.log.effects import Effect, Emit
from strandline.core.state_events import CoordinatorLoad, GroupChange
from strandline.core.types import LeaderEpoch, TopicPartition
from strandline.metrics.figures import Spread
from strandline.metrics.groups import GroupCounts
from strandline.rpc.channels import open_channel
from strandline.runtime.patterns import Re2Patterns
from strandline.v1 import group_service_pb2 as pb
from strandline.v1 import group_service_pb2_grpc as pb_grpc

STATE = TopicPartition("state", 0)


class Counted:
    """Groups of one shard after another, whose reports are counted as a node counts its own."""

    def __init__(self) -> None:
        self.groups = GroupsAlone(Topics(foo=4))
        self.counts = GroupCounts(lambda: self.groups.now_ms)
        self.shards: list[Any] = []

    def serve(self, epoch: int = 1, *, load_ms: int = 0) -> None:
        """A coordinator of this epoch reads the log so far, which takes so long, and serves."""
        self.reports = Reports(STATE, LeaderEpoch(epoch))
        machine = GroupMachine(Re2Patterns(), self.groups.settings, GroupReporting(self.reports, samples=False))
        for record in self.groups.log:
            machine.apply(record)
        self.groups.machine = machine
        machine.excuse(self.groups.context)
        self.shards = [shard_of(machine, ShardState.ACTIVE, epoch)]
        self.reports.add(CoordinatorLoad(100, len(self.groups.log), load_ms, LeaderEpoch(epoch)))
        self.groups.tick()
        self.count()

    def count(self, after_ms: int = 0) -> None:
        """Count what was reported; then time passes."""
        out: list[Effect] = []
        self.reports.leave(out)
        for effect in out:
            assert isinstance(effect, Emit)
            if isinstance(effect.event, GroupChange):
                self.counts.changed(effect.event)
            elif isinstance(effect.event, CoordinatorLoad):
                self.counts.loaded(effect.event)
        self.groups.now_ms += after_ms

    def settle(self, *member_ids: str) -> None:
        """Members that do as they are asked."""
        self.groups.settle(*member_ids)
        self.count()

    def values(self) -> dict[str, float]:
        """The series by name and label; of a histogram its number and its sum."""
        found: dict[str, float] = {}
        for family, value, labels in self.counts.figures(self.shards):
            name = "".join([family.name, *(f" {label}" for label in labels)])
            if isinstance(value, Spread):
                found |= {f"{name} count": value.cumulative[-1], f"{name} sum": value.total}
            else:
                found[name] = value
        return found


def shard_of(machine: GroupMachine, state: ShardState, epoch: int = 1) -> Any:
    """As much of a shard as is read."""
    leader = SimpleNamespace(image=SimpleNamespace(leader_epoch=LeaderEpoch(epoch)))
    return SimpleNamespace(leader=leader, state=state, is_serving=state is ShardState.ACTIVE, machine=machine)


@pytest.fixture
def seen() -> Counted:
    """A shard without groups."""
    counted = Counted()
    counted.serve()
    return counted


def test_a_rebalance_is_counted_once_with_what_began_it(seen: Counted) -> None:
    """It lasts from the change that unsettled the group to the one that settled it; a first member settles at once."""
    seen.groups.join("m1", "foo")
    seen.settle()
    seen.groups.join("m2", "foo")
    seen.count(after_ms=250)
    seen.groups.join("m3", "foo")
    seen.count(after_ms=500)
    during = seen.values()
    seen.settle()
    after = seen.values()

    assert during["group_rebalances_total join"] == after["group_rebalances_total join"] == 2
    assert during["groups assigning"] + during["groups reconciling"] == 1
    assert during["group_oldest_rebalance_seconds"] == 0.75
    assert (after["groups stable"], after["group_members"], after["group_oldest_rebalance_seconds"]) == (1, 3, 0)
    assert after["group_rebalance_seconds count"] == 2
    assert 0.75 <= after["group_rebalance_seconds sum"] < 1


def test_causes_are_told_apart(seen: Counted) -> None:
    """A member that leaves, and a topic that grows, begin rebalances of their own."""
    for member_id in ("m1", "m2"):
        seen.groups.join(member_id, "foo")
    seen.settle()
    seen.groups.topics.put("foo", 6)
    seen.settle()
    seen.groups.beat("m2", -1)
    seen.settle("m1")
    counted = {name: value for name, value in seen.values().items() if name.startswith("group_rebalances_total")}

    assert counted == {
        "group_rebalances_total join": 2,
        "group_rebalances_total interest": 1,
        "group_rebalances_total leave": 1,
    }


def test_what_a_new_coordinator_loads_is_no_rebalance(seen: Counted) -> None:
    """Its load is timed, groups that were there are not counted, and one that rebalances is as old as its first
    report there."""
    seen.groups.join("m1", "foo")
    seen.settle()
    seen.groups.join("m2", "foo")
    seen.count(after_ms=60_000)
    seen.serve(epoch=2, load_ms=3_000)
    seen.count(after_ms=5_000)
    served = seen.values()
    seen.settle()

    assert (served["coordinator_load_seconds count"], served["coordinator_load_seconds sum"]) == (2, 3)
    assert served["group_rebalances_total join"] == 2
    assert served["group_oldest_rebalance_seconds"] == 5
    assert 5 <= seen.values()["group_rebalance_seconds sum"] < 6


def test_a_group_that_is_repeated_has_not_rebalanced(seen: Counted) -> None:
    """What it is is said again each hour, stable or not."""
    seen.groups.join("m1", "foo")
    seen.settle()
    before = seen.values()
    seen.groups.now_ms += HOUR_MS
    seen.groups.beat("m1")
    seen.groups.tick()
    seen.count()

    assert seen.values() == before


def test_a_shard_that_is_led_elsewhere_is_forgotten(seen: Counted) -> None:
    """A rebalance that goes on elsewhere is nobody's here."""
    for member_id in ("m1", "m2"):
        seen.groups.join(member_id, "foo")
    seen.count(after_ms=1_000)
    here = seen.values()
    seen.shards = []
    away = seen.values()

    assert here["group_oldest_rebalance_seconds"] == 1
    assert (away["group_oldest_rebalance_seconds"], away["group_members"], away["groups stable"]) == (0, 0, 0)


def test_a_shard_that_loads_is_shown_without_its_groups(seen: Counted) -> None:
    """What it has read may not be all."""
    seen.groups.join("m1", "foo")
    seen.shards = [shard_of(seen.groups.machine, ShardState.LOADING)]
    loading = seen.values()

    assert (loading["coordinator_shards loading"], loading["coordinator_shards active"]) == (1, 0)
    assert (loading["group_members"], loading["groups stable"]) == (0, 0)


async def test_commits_are_counted_by_result(tmp_path: Path) -> None:
    """One for each partition: committed, or by the name of the error, also of a partition that does not exist. The
    loads of both coordinators are counted beside them."""
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
    assert seen.value("coordinator_shards", state="active") == seen.value("coordinator_load_seconds_count") == 2
    assert seen.value("groups", state="empty") == 1
