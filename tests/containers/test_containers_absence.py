"""Cases 2 to 6: leaders that are killed or cut off, slow followers, absent controllers and replicas."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from container_case import Case, case, everybody
from container_cluster import CONTROLLER, NODES, ContainerCluster
from harness.stale_client import NAME
from played import Played
from raw_records import batch, produce
from running_cluster import until

from strandline.core.errors import ErrorCode
from strandline.v1 import metadata_pb2

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]
_AWAY_S = 30.0


async def test_nothing_is_decided_while_the_controller_is_away(cluster: ContainerCluster, tmp_path: Path) -> None:
    """Produce and fetch continue while the ISR is stable; it returns with its store, and no epoch goes down."""
    async with case(cluster, "no-controller", tmp_path) as run:
        before = await run.probe.metadata()
        await run.do(cluster.kill, CONTROLLER)
        gone_s = time.monotonic()
        while time.monotonic() - gone_s < _AWAY_S:
            await run.load.acked(5)
        led = [await _epoch_of_leader(run, index, node) for index, node in run.leaders(_of(run, before)).items()]
        ended_s = time.monotonic()
        await run.do(cluster.start_again, CONTROLLER)
        await everybody(run.probe)
        after = await run.probe.metadata()
        votes = [row for row in run.events("LEADER_CHANGE") if row.get("old_leader_epoch") is not None]
        await run.settle()

    assert ended_s - gone_s >= _AWAY_S
    assert led == [each.leader_epoch for each in _of(run, before)]
    assert votes == []
    assert [(each.leader_id, each.leader_epoch) for each in _of(run, after)] == [
        (each.leader_id, each.leader_epoch) for each in _of(run, before)
    ]
    assert all(
        new.partition_epoch >= old.partition_epoch for new, old in zip(_of(run, after), _of(run, before), strict=True)
    )
    assert after.controller_epoch > before.controller_epoch
    assert after.cluster_id == before.cluster_id


def _of(run: Case, metadata: metadata_pb2.ClusterMetadata) -> list[metadata_pb2.PartitionMetadata]:
    """The partitions of the case's topic in the controller's metadata."""
    return next(list(topic.partitions) for topic in metadata.topics if topic.name == run.load.strict)


async def _epoch_of_leader(run: Case, index: int, node_id: int) -> int:
    """The epoch in which a node itself reports that it leads."""
    led = await run.probe.described(run.load.strict, node_id, index)
    assert not led.error_code, led.error_message
    return int(led.leader_epoch)


async def test_one_of_three_replicas_serves_reads_and_refuses_acks_all(
    cluster: ContainerCluster, tmp_path: Path
) -> None:
    """NOT_ENOUGH_REPLICAS below min ISR, and reads continue up to the leader's HW (P6); writes resume on their return.

    Every record acknowledged before is readable while two are down, and afterwards.
    """
    async with case(cluster, "two-away", tmp_path) as run:
        leader = await run.probe.leader(run.load.strict)
        others = [node for node in NODES if node != leader]
        await run.load.pause()
        await asyncio.gather(*(run.do(cluster.stop, node) for node in others))
        await _alone(run, leader)
        refused = await produce(run.probe, leader, run.load.strict, batch(b"refused"))
        await run.load.read_again()
        for node in others:
            await run.do(cluster.start_again, node)
        await everybody(run.probe)
        await run.load.go_on()
        await run.settle()

    assert ErrorCode(refused.error_code) is ErrorCode.NOT_ENOUGH_REPLICAS


async def _alone(run: Case, leader: int) -> None:
    """Waits until the remaining node leads every partition and is alone in its ISR."""

    async def look() -> bool:
        topics = [await run.probe.topic(topic) for topic in run.load.topics]
        partitions = [each for topic in topics for each in topic.partitions]
        return all(each.leader_id == leader and list(each.isr) == [leader] for each in partitions)

    await until(look, f"node {leader} is the only one in every ISR")


# Cases 2 and 3: the effects of a killed leader and a slow follower on the ISR, the logs and the events.


def test_a_killed_leader_is_replaced_and_cuts_its_tail(killed_leader: Played) -> None:
    """Another node leads within the session plus two seconds; the old one returns and truncates; nothing is lost.

    The load's history, and the equality of the three logs, were checked when the case was played.
    """
    assert killed_leader.failovers, "the killed node led something"
    assert max(killed_leader.failovers.values()) <= killed_leader.limit_s
    assert killed_leader.truncated > 0


def test_a_killed_leader_leaves_every_isr_once(killed_leader: Played) -> None:
    """One shrink of each partition with cause node_fenced, and one expand after its return."""
    assert killed_leader.changes == killed_leader.removals
    assert killed_leader.expands == killed_leader.removals.total()


def test_a_follower_that_falls_behind_leaves_once_for_each_cause(lagging_follower: Played) -> None:
    """Cut from its leader alone: one shrink with cause lag. Paused: one with cause node_fenced. Each heals."""
    assert lagging_follower.changes == lagging_follower.removals
    assert lagging_follower.expands == lagging_follower.removals.total()


def test_a_follower_that_stands_still_costs_what_it_leads_a_session(lagging_follower: Played) -> None:
    """The paused node's own partitions get another leader within session plus two seconds."""
    assert lagging_follower.failovers
    assert max(lagging_follower.failovers.values()) <= lagging_follower.limit_s


# Case 4: a leader loses the network of the nodes while clients still reach it.


_GRACE_S = 1.0
"""An answer under way when the epoch moved may still arrive; it was right when it was given."""


_ZOMBIE_S = 4.0
"""How long clients meet both leaders."""


async def test_a_leader_off_the_network_of_nodes_acknowledges_nothing(
    cluster: ContainerCluster, tmp_path: Path
) -> None:
    """Cut off, it keeps new records to itself; another leads; healed, its tail is gone and no acked record is.

    The client that knows only the old leader gets no acks=all once the new one leads.
    """
    async with case(cluster, "zombie", tmp_path) as run:
        before = await run.probe.partition(run.load.strict)
        leader = before.leader_id
        cut_s = time.monotonic()
        await run.do(cluster.disconnect, leader)
        await run.probe.new_epoch(run.load.strict, before.leader_epoch)
        deposed_s = time.monotonic()
        await _both_lead(run, deposed_s)
        tail = await run.probe.replica(run.load.strict, leader)
        now = await run.probe.partition(run.load.strict)
        begun = (await run.probe.replica(run.load.strict, now.leader_id)).epochs[-1]
        healed_s = time.monotonic()
        await run.do(cluster.connect, leader)
        asked = run.load.sent_between(NAME, deposed_s + _GRACE_S, healed_s)
        await _ended(run, healed_s)
        await run.settle()
        cuts = [row for row in run.events("TRUNCATION") if row["node_id"] == leader and row["partition"] == 0]

    reported = [each for each in asked if each.outcome == "ok" and (each.completed_s or 0.0) < healed_s]
    assert asked, "the client went on to ask the old leader"
    assert reported == []
    assert deposed_s - cut_s <= run.limit_s(cut_s)
    assert tail.leo > begun[1], "the old leader held a tail of its own"
    assert sum(row["from_leo"] - row["to_leo"] for row in cuts) >= tail.leo - begun[1]
    assert [row for row in cuts if row["committed_cut"]] == []


async def _both_lead(run: Case, since_s: float) -> None:
    """Waits until the new leader has acknowledged, and the old one has received requests for long enough."""
    await run.load.acked(5)

    async def look() -> bool:
        return time.monotonic() - since_s >= _ZOMBIE_S

    await until(look, "the old leader was asked for some seconds")


async def _ended(run: Case, before_s: float) -> None:
    """Waits until every record that the old leader's client sent before has an outcome."""

    async def look() -> bool:
        return all(each.outcome for each in run.load.sent_between(NAME, 0.0, before_s))

    await until(look, "what was sent to the old leader has ended")
