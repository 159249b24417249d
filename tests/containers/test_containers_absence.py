"""Cases 5 and 6: the controller is down; two of three replicas are down."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from container_case import Case, case, everybody
from container_cluster import CONTROLLER, NODES, ContainerCluster
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
