"""Replicas move to other nodes under load: nothing is lost, refused or doubled, and the old nodes drop their logs."""

from __future__ import annotations

import os
import time

import pytest
from client_load import Load
from running_cluster import Probe, until
from settled_logs import assert_settled

from strandline.client import Admin, Producer
from strandline_sim.checks.history import SendOutcome

CLUSTER = {"nodes": 6}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def _ended(admin: Admin) -> None:
    async def look() -> bool:
        return not await admin.list_partition_reassignments()

    await until(look, "every reassignment has ended", timeout_s=90)


async def test_all_replicas_go_to_other_nodes_under_load(probe: Probe, topic: str) -> None:
    """From three nodes to three others with acks=all: every send is acknowledged, every log is equal, strays are set
    aside."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    before = await probe.partition(topic)
    async with Admin(probe.local.bootstrap) as admin, Load(probe=probe, topic=topic, partitions=1) as load:
        await load.acked(100)
        (taken,) = await admin.alter_partition_reassignments({(topic, 0): (4, 5, 6)})
        assert (taken.state, taken.refusal) == ("running", None)
        await _ended(admin)
        await load.acked(100)
        await load.finish()
    records = await assert_settled(probe, topic)
    after = await probe.partition(topic)

    assert sorted(after.isr) == list(after.replicas) == [4, 5, 6]
    assert after.leader_epoch > before.leader_epoch
    assert load.outcomes[SendOutcome.OK] == records
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0
    for node_id in (1, 2, 3):
        directory = probe.local.nodes[node_id].directory
        assert not (directory / f"{topic}-0").exists()
        assert len(list(directory.glob(f"{topic}-0.*.moved.stray"))) == 1


async def test_a_throttled_copy_takes_its_time_and_slows_nobody_else(probe: Probe, topic: str) -> None:
    """At a rate a copy takes at least its bytes / rate, less a second's burst; acks=all of another topic on the same
    leader go on meanwhile, and the rate is gone with the move."""
    rate, sent, other = 1_000_000, 4_000_000, f"{topic}-other"
    await probe.create_topic(topic, assignment=[1])
    await probe.create_topic(other, assignment=[1, 2, 3])
    async with Producer(probe.local.bootstrap) as producer:
        await producer.send_many(topic, [(None, os.urandom(10_000))] * (sent // 10_000))
    async with Admin(probe.local.bootstrap) as admin, Load(probe=probe, topic=other, partitions=1) as load:
        await load.acked(10)
        began_s = time.monotonic()
        await admin.alter_partition_reassignments({(topic, 0): (4,)}, throttle_bytes_per_s=rate)
        meanwhile = await admin.list_partition_reassignments()
        await load.acked(20)
        await _ended(admin)
        took_s = time.monotonic() - began_s
        await load.finish()
    after = await probe.partition(topic)

    assert [one.throttle_bytes_per_s for one in meanwhile] == [rate]
    assert took_s >= (sent - (1 << 20)) / rate - 1
    assert (list(after.replicas), after.HasField("throttle_bytes_per_s")) == ([4], False)
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0


async def test_a_drained_node_ends_without_leaderships(probe: Probe, topic: str) -> None:
    """A drained node hands over what it leads; after a move of its replicas it holds nothing."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    async with Admin(probe.local.bootstrap) as admin:
        drained = await admin.drain_node(1)
        await admin.alter_partition_reassignments({(topic, 0): (2, 3, 4)}, planned_from={(topic, 0): (1, 2, 3)})
        await _ended(admin)
        emptied = await admin.drain_node(1)
        await admin.drain_node(1, draining=False)

    assert drained.remaining_leaders == 0
    assert drained.remaining_replicas - emptied.remaining_replicas == 1
    assert not (await probe.node(1)).draining
