"""The whole cluster or its controller stops and returns: every acknowledged record is there."""

from __future__ import annotations

import asyncio
import time

import pytest
from client_load import Load
from running_cluster import Probe
from settled_logs import assert_settled

from strandline_sim.checks.history import SendOutcome

_CONTROLLER_DOWN_S = 20.0


async def test_kill_everything_and_start_again(probe: Probe, topic: str) -> None:
    """kill -9 of the controller and every node during writes: every acknowledged record is there."""
    await probe.create_topic(topic, partitions=2)
    before = await probe.metadata()
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(50)
        probe.local.kill()
        await probe.everybody()
        await load.acked(20)
        await probe.in_sync(topic)
        await load.finish()
    after = await probe.metadata()
    await assert_settled(probe, topic)

    assert after.controller_epoch == before.controller_epoch + 1
    known = await probe.topic(topic)
    assert [p.leader_epoch for p in known.partitions] > [0, 0]
    assert known.topic_id in {earlier.topic_id for earlier in before.topics}


@pytest.mark.slow
async def test_a_clean_restart_of_everything(probe: Probe, topic: str) -> None:
    """A cluster that is stopped cleanly and started again continues with the same records, ids and addresses."""
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(50)
        ends = await probe.local.stop()
        await probe.everybody()
        await load.acked(20)
        await probe.in_sync(topic)
        await load.finish()
    await assert_settled(probe, topic)

    assert [(end.code, end.forced) for end in ends] == [(0, False)] * (1 + len(probe.local.nodes))


@pytest.mark.timeout(180)
@pytest.mark.slow
async def test_the_controller_is_away_for_twenty_seconds(probe: Probe, topic: str) -> None:
    """Without a controller the data path continues, and neither ISR nor leader changes, then or after its return."""
    await probe.create_topic(topic, partitions=2)
    before = await probe.topic(topic)
    epoch = (await probe.metadata()).controller_epoch
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(20)
        probe.local.controller.kill()
        went_s = time.monotonic()
        while time.monotonic() < went_s + _CONTROLLER_DOWN_S:
            await load.acked(20)
            await asyncio.sleep(0.2)
        await probe.local.start_controller()
        await probe.everybody()
        await load.acked(50)
        after = await probe.topic(topic)
        await load.finish()
    again = (await probe.metadata()).controller_epoch
    await assert_settled(probe, topic)

    assert list(after.partitions) == list(before.partitions)
    assert again == epoch + 1
    assert load.outcomes[SendOutcome.INDEFINITE] == 0
    assert load.slowest_ack_s() < load.limit_s(3.0, went_s)


@pytest.mark.slow
async def test_a_controller_that_is_killed_comes_back_with_its_topics(probe: Probe, topic: str) -> None:
    """What the controller answered is durable: a topic is there, under its id, after kill -9."""
    created = await probe.create_topic(topic, partitions=2, retention_ms="60000")
    probe.local.controller.kill()
    await probe.local.start_controller()
    await probe.everybody()
    found = await probe.topic(topic)

    assert found.topic_id == created.topic_id
    assert dict(found.configs) == {"retention.ms": "60000"}
