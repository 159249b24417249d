"""Nodes die and leave under load: no acknowledged record is lost or duplicated, and the logs are equal after."""

from __future__ import annotations

import asyncio
import operator
import time

import pytest
from client_load import Load
from running_cluster import SESSION_S, Probe, until
from settled_logs import assert_settled

from strandline_sim.checks.history import SendOutcome

_ELECTION_S = 2.0
"""How long a partition is without a leader beyond the node session, on a quiet machine (V4)."""


async def test_produce_and_consume(probe: Probe, topic: str) -> None:
    """Without any fault every record is acknowledged, read once by every consumer, and on every disk."""
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic, pause_s=0.003) as load:
        await load.acked(300)
        await load.finish()
    records = await assert_settled(probe, topic)

    assert load.outcomes[SendOutcome.OK] == records
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
async def test_killing_the_leader_again_and_again(probe: Probe, topic: str, kills: int) -> None:
    """kill -9 of the leader, once or five times, restarted at once or later: no loss, and new epochs every time."""
    await probe.create_topic(topic, partitions=2)
    epochs = [(await probe.partition(topic)).leader_epoch]
    pauses_s, limits_s = [], []
    async with Load(probe=probe, topic=topic) as load:
        for kill in range(kills):
            calm_s = time.monotonic()
            await load.acked(30)
            before = await probe.partition(topic)
            killed_s = time.monotonic()
            probe.local.kill_node(before.leader_id)
            if kill % 2:
                await probe.restart(before.leader_id)
            epochs.append((await probe.new_epoch(topic, before.leader_epoch)).leader_epoch)
            await load.acked(10)
            pauses_s.append(load.first_ack_s(killed_s, partition=0))
            limits_s.append(SESSION_S + load.limit_s(_ELECTION_S, killed_s, calm_s))
            if not kill % 2:
                await probe.restart(before.leader_id)
            await probe.in_sync(topic)
        await load.finish()
    await assert_settled(probe, topic)

    assert epochs == sorted(set(epochs))
    assert load.outcomes[SendOutcome.OK] > kills * 40 * 2
    assert all(map(operator.lt, pauses_s, limits_s)), f"first acks after {pauses_s} s, allowed are {limits_s}"


@pytest.mark.slow
async def test_a_paused_leader_wakes_under_another_reign(probe: Probe, topic: str) -> None:
    """A leader paused longer than its session is replaced in time, and continues without an error when it resumes.

    Records that only it had accepted are never read.
    """
    await probe.create_topic(topic)
    before = await probe.partition(topic)
    pids = [service.pid for service in probe.local.services]
    async with Load(probe=probe, topic=topic, partitions=1) as load:
        await load.acked(50)
        paused_s = time.monotonic()
        probe.pause(before.leader_id)
        try:
            after = await probe.new_epoch(topic, before.leader_epoch)
            await load.acked(20)
        finally:
            probe.resume(before.leader_id)
        await probe.in_sync(topic)
        await load.acked(20)
        await load.finish()
    await assert_settled(probe, topic)

    assert after.leader_id != before.leader_id
    assert load.first_ack_s(paused_s, partition=0) < SESSION_S + load.limit_s(_ELECTION_S, paused_s)
    assert [service.pid for service in probe.local.services] == pids


@pytest.mark.slow
async def test_killing_a_follower(probe: Probe, topic: str) -> None:
    """kill -9 of a follower: the leader stays, the ISR shrinks and grows again, and nothing is lost."""
    await probe.create_topic(topic)
    before = await probe.partition(topic)
    victim = next(node_id for node_id in before.replicas if node_id != before.leader_id)
    async with Load(probe=probe, topic=topic, partitions=1) as load:
        await load.acked(50)
        probe.local.kill_node(victim)

        async def shrunk() -> bool:
            return victim not in (await probe.partition(topic)).isr

        await until(shrunk, f"node {victim} left the ISR")
        await load.acked(50)
        await probe.restart(victim)
        await probe.in_sync(topic)
        await load.acked(20)
        await load.finish()
    after = await probe.partition(topic)
    await assert_settled(probe, topic)

    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
    assert after.partition_epoch >= before.partition_epoch + 2
    assert load.outcomes[SendOutcome.INDEFINITE] == 0


@pytest.mark.slow
async def test_a_leader_that_is_asked_to_stop_hands_over(probe: Probe, topic: str) -> None:
    """SIGTERM moves leadership without an error, and without a pause, that an idempotent producer could see."""
    await probe.create_topic(topic, partitions=2)
    before = await probe.partition(topic)
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(50)
        asked_s = time.monotonic()
        end = await probe.local.nodes[before.leader_id].stop(15_000)
        after = await probe.new_epoch(topic, before.leader_epoch)
        await load.acked(50)
        await probe.restart(before.leader_id)
        await probe.in_sync(topic)
        await load.finish()
    await assert_settled(probe, topic)

    assert end is not None
    assert (end.code, end.forced) == (0, False)
    assert after.leader_id != before.leader_id
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0
    assert load.slowest_ack_s() < load.limit_s(_ELECTION_S, asked_s)


@pytest.mark.slow
async def test_two_nodes_down_refuse_instead_of_acknowledging(probe: Probe, topic: str) -> None:
    """Below min ISR nothing is acknowledged, and the end that clients saw stays; then everything continues (P6)."""
    await probe.create_topic(topic)
    before = await probe.partition(topic)
    followers = [node_id for node_id in before.replicas if node_id != before.leader_id]
    async with Load(probe=probe, topic=topic, partitions=1) as load:
        await load.acked(50)
        for node_id in followers:
            probe.local.kill_node(node_id)

        async def alone() -> bool:
            return list((await probe.partition(topic)).isr) == [before.leader_id]

        await until(alone, "the leader is alone in the ISR")
        frozen = await probe.described(topic, before.leader_id)
        acked = load.outcomes[SendOutcome.OK]
        # Any number of checks would do; each is a round trip in which a wrong leader would acknowledge.
        later = [await probe.described(topic, before.leader_id) for _ in range(30)][-1]
        acked_below = load.outcomes[SendOutcome.OK] - acked
        elr = list((await probe.partition(topic)).elr)
        await asyncio.gather(*(probe.restart(node_id) for node_id in followers))
        await load.acked(20)
        await probe.in_sync(topic)
        await load.finish()
    await assert_settled(probe, topic)

    assert later.high_watermark == frozen.high_watermark
    assert acked_below == 0
    assert elr != []
