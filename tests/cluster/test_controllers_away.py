"""Controllers that are stopped, and a store that is copied while it serves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from client_load import Load
from running_cluster import Probe, until
from settled_logs import assert_settled

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin, Consumer, ControllersAway, Producer
from strandline.controller.tools import backup, recover
from strandline.core.types import LeaderEpoch, NodeId
from strandline.runtime.exit_codes import ExitCode

CLUSTER = {"nodes": 3}
STOP_MS = 15_000
BEFORE = b"before the controller went"


@pytest_asyncio.fixture
async def away(cluster: LocalCluster, probe: Probe, topic: str) -> AsyncIterator[list[str]]:
    """The addresses of the data nodes of a cluster whose controller was stopped; it has a topic of the test's name."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    await probe.in_sync(topic)
    # An ISR is complete from the topic's first moment; that every member has the topic shows when one record is
    # committed. No replica could leave the ISR once the controller is gone.
    async with Producer(cluster.bootstrap, acks="all") as producer:
        await producer.send_and_wait(topic, BEFORE)
    found = [cluster.address(node_id) for node_id in cluster.node_ids]
    await cluster.controller.stop(STOP_MS)
    yield [address.client for address in found if address is not None]
    if not cluster.controller.running:
        await cluster.start_controller()


async def test_a_new_client_starts_produces_and_consumes(away: list[str], topic: str) -> None:
    """A client that never saw a controller starts at one data node, produces with acks=all and an id, and reads it."""
    values = [b"%d" % number for number in range(20)]
    async with Producer(away[:1], acks="all", idempotent=True) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)
    async with Consumer(away[1:2], stop_at_end=True) as consumer:
        await consumer.assign([topic])
        read = [record.value async for record in consumer]

    assert read == [BEFORE, *values]


async def test_a_new_client_starts_at_any_node(away: list[str], topic: str) -> None:
    """Node 1 leads; a client that is given the address of any one node reaches it, and reads what it sent."""
    for number, address in enumerate(away):
        async with Producer(address, acks="all", idempotent=True) as producer:
            await producer.send_and_wait(topic, b"through node %d" % (number + 1))
        async with Consumer(address, stop_at_end=True) as consumer:
            await consumer.assign([topic])
            read = [record.value async for record in consumer]

        assert read == [BEFORE, *(b"through node %d" % (other + 1) for other in range(number + 1))]


async def test_a_client_whose_view_is_old_finds_the_leader_without_a_controller(away: list[str], topic: str) -> None:
    """C64: it believes that node 3 leads since ten elections ago; the refusal names the leader, and it goes there."""
    async with Producer(away[2], acks="all") as producer:
        cluster = producer._cluster
        known = await cluster.topic(topic)
        tp = known.partitions[0].tp
        old = replace(known.partitions[0], leader=NodeId(3), leader_epoch=LeaderEpoch(-10))
        cluster.view._believe(replace(cluster.image, topics=(replace(known, partitions=(old,)),)))
        believed = cluster.view.leader_of(tp)
        sent = await producer.send_and_wait(topic, b"by way of node 3")
        found = cluster.view.leader_of(tp)

    assert believed is not None and believed.node_id == 3
    assert sent.offset == 1
    assert found is not None and found.node_id == 1


async def test_two_producers_at_two_nodes_have_different_ids(away: list[str]) -> None:
    """Each node gives ids of its own blocks, so no two producers share one."""
    async with Producer(away[0]) as one, Producer(away[0]) as two, Producer(away[1]) as three:
        given = [producer._dispatcher._identity for producer in (one, two, three) if producer._dispatcher is not None]

    assert None not in given
    assert len({identity.producer_id for identity in given if identity is not None}) == 3


async def test_a_change_fails_with_the_addresses_tried(cluster: LocalCluster, away: list[str]) -> None:
    """Creating a topic needs a controller; the refusal names where one was looked for."""
    async with Admin(away, timeout_ms=3_000) as admin:
        with pytest.raises(ControllersAway, match="controllers away: none answered at") as caught:
            await admin.create_topic("never")
        whole = await admin.metadata()

    assert cluster.bootstrap in str(caught.value)
    assert len(whole.nodes) == 3


async def test_the_age_grows_while_controllers_are_away(away: list[str]) -> None:
    """What a client is sent says how long its node has heard of no controller."""
    async with Admin(away) as admin:
        first = admin.metadata_age_ms
        assert first is not None
        await until(lambda: _aged(admin, first + 2_500), "an older age")
        async with Admin(away) as another:
            second = another.metadata_age_ms

    assert second is not None
    assert second > first


async def _aged(admin: Admin, least_ms: int) -> bool:
    age_ms = admin.metadata_age_ms
    return age_ms is not None and age_ms >= least_ms


async def test_a_node_that_restarts_without_a_controller_serves_what_it_stored(
    cluster: LocalCluster, away: list[str], topic: str
) -> None:
    """Started again, it leads nothing and takes no records, and yet tells a client where the leaders are."""
    leader, other = cluster.nodes[1], cluster.address(1)
    assert other is not None
    await leader.stop(STOP_MS)
    # With the port that it had, which its first start chose.
    leader.command = cluster._node_command(1)
    leader.start()
    try:
        async with Admin(other.client, timeout_ms=20_000) as admin:
            known = await admin._cluster.topic(topic, deadline_ms=20_000)
            age_ms = admin.metadata_age_ms
    finally:
        await cluster.start_controller()
        await leader.serving(STOP_MS)

    assert known.partitions[0].replicas == (1, 2, 3)
    assert age_ms is not None
    assert age_ms >= 0


# The controller's store is copied while it serves, and a cluster that lost the store continues from the copy.


@pytest.mark.timeout(180)
async def test_a_backup_of_a_running_store_is_restored_by_recover(
    probe: Probe, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Copied under load; later the store is lost with a newer topic: recover restores both, with higher epochs."""
    copy, store = tmp_path / "copy.sqlite", probe.local.directory / "controller"
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(20)
        made = await asyncio.to_thread(backup.main, ["--data-dir", str(store), "--to", str(copy)])
        await probe.create_topic(f"{topic}-younger")
        await load.acked(20)
        before = await probe.metadata()
        await probe.local.stop()
        for path in store.glob("metadata.sqlite*"):
            path.unlink()
        copy.rename(store / "metadata.sqlite")
        nodes = [str(probe.local.directory / f"node-{node_id}") for node_id in probe.local.nodes]
        recovered = await asyncio.to_thread(recover.main, ["--data-dir", str(store), *nodes])
        await probe.everybody()
        await probe.in_sync(topic)
        await load.acked(20)
        await load.finish()
    after = await probe.metadata()
    await assert_settled(probe, topic)

    assert (made, recovered) == (ExitCode.CLEAN, ExitCode.CLEAN)
    assert f"copied cluster {before.cluster_id} at metadata offset" in capfd.readouterr().out
    assert {each.topic_id for each in after.topics} >= {each.topic_id for each in before.topics}
    assert after.controller_epoch > before.controller_epoch
    assert after.metadata_offset > before.metadata_offset


async def test_a_stopped_store_is_copied_too(probe: Probe, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a controller the command reads the store itself; a second run does not overwrite the copy."""
    words = ["--data-dir", str(probe.local.directory / "controller"), "--to", str(tmp_path / "copy.sqlite")]
    await probe.local.controller.stop(15_000)

    first = await asyncio.to_thread(backup.main, words)
    second = await asyncio.to_thread(backup.main, words)
    await probe.everybody()

    assert (first, second) == (ExitCode.CLEAN, ExitCode.FAILED)
    assert "exists; name another file" in capfd.readouterr().err
    assert os.listdir(tmp_path) == ["copy.sqlite"]


def test_a_directory_without_a_store_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A wrong directory is reported in one line, and no store is created in it."""
    code = backup.main(["--data-dir", str(tmp_path), "--to", str(tmp_path / "copy")])

    assert code is ExitCode.FAILED
    assert capfd.readouterr().err.startswith(f"strandline: no backup was made: {tmp_path} holds no metadata.sqlite")
    assert os.listdir(tmp_path) == []
