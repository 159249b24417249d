"""Slow consumers, and reads from followers or observers: always a prefix of the one log, and never more."""

from __future__ import annotations

import time

import pytest
from client_load import Load
from raw_records import all_values, append, batch, fetch, fetch_at_follower, produce, values_of
from running_cluster import Probe, until
from settled_logs import assert_settled

from strandline.v1 import error_pb2, leader_service_pb2 as leader_pb
from strandline_sim.checks.history import SendOutcome

OBSERVER = 4


async def test_a_slow_consumer_reads_everything(probe: Probe, topic: str) -> None:
    """A slow consumer misses nothing, and delays no other client."""
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic, pause_s=0.003) as load:
        await load.acked(100)
        calm_s = time.monotonic()
        load.read_slowly(0.5)
        await load.acked(200)
        await load.finish()
    await assert_settled(probe, topic)

    assert load.outcomes[SendOutcome.OK] > 600
    assert load.slowest_ack_s() < load.limit_s(3.0, calm_s)


async def test_a_consumer_at_followers_reads_the_same_log(probe: Probe, topic: str) -> None:
    """Reading from followers gives the same records in the same order as reading from leaders."""
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic, followers_are_read=True) as load:
        await load.acked(100)
        await load.finish()
    await assert_settled(probe, topic)


async def test_a_follower_answers_up_to_its_own_hw(probe: Probe, topic: str) -> None:
    """A follower returns what it knows as committed, an empty answer at its HW, and above it a retriable error."""
    await probe.create_topic(topic)
    await append(probe, topic, b"a", b"b", b"c")
    leader = await probe.leader(topic)
    follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)

    async def knows_it() -> bool:
        return (await probe.replica(topic, follower)).hw == 3

    await until(knows_it, "the follower's HW is 3")
    whole = await fetch_at_follower(probe, follower, topic)
    at_hw = await fetch_at_follower(probe, follower, topic, 3)
    above = await fetch_at_follower(probe, follower, topic, 4)
    at_leader = await fetch_at_follower(probe, leader, topic)

    assert values_of(whole.records) == [b"a", b"b", b"c"]
    assert (at_hw.error_code, at_hw.records, at_hw.high_watermark) == (0, b"", 3)
    assert above.error_code == error_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE
    assert "fetch_offset 4" in above.error_message
    assert at_leader.error_code == error_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


async def test_a_follower_gives_nothing_that_is_not_committed(probe: Probe, topic: str) -> None:
    """A record that waits for a stopped follower is on the other one's disk, and is not returned to readers."""
    await probe.create_topic(topic)
    await append(probe, topic, b"a")
    leader = await probe.leader(topic)
    reader, stopped = (node_id for node_id in (1, 2, 3) if node_id != leader)

    async def knows_it() -> bool:
        return (await probe.replica(topic, reader)).hw == 1

    async def has_it() -> bool:
        return (await probe.replica(topic, reader)).leo == 2

    await until(knows_it, "the follower's HW is 1")
    probe.pause(stopped)
    try:
        unacked = await produce(probe, leader, topic, batch(b"b"), timeout_ms=200)
        await until(has_it, "the uncommitted record reached the other follower", timeout_s=5)
        seen = await fetch_at_follower(probe, reader, topic, 0)
        state = await probe.replica(topic, reader)
    finally:
        probe.resume(stopped)
    await probe.everybody()
    await assert_settled(probe, topic)

    assert unacked.error_code in (0, error_pb2.ERROR_CODE_REQUEST_TIMED_OUT)
    assert values_of(seen.records) == [b"a", b"b"][: state.hw]
    assert seen.high_watermark <= state.hw


async def test_a_leader_gives_nothing_that_is_not_committed(probe: Probe, topic: str) -> None:
    """A record on the leader alone is acknowledged with acks=1, not with acks=all, and is not readable (P6, P7)."""
    await probe.create_topic(topic)
    await append(probe, topic, b"a")
    await assert_settled(probe, topic)
    leader = await probe.leader(topic)
    followers = [node_id for node_id in (1, 2, 3) if node_id != leader]
    for node_id in followers:
        probe.pause(node_id)
    try:
        alone = await produce(probe, leader, topic, batch(b"b"), acks=1)
        together = await produce(probe, leader, topic, batch(b"c"), timeout_ms=200)
        seen = await fetch(probe, leader, topic, 0)
        at_hw = await fetch(probe, leader, topic, 1)
        end = await probe.latest(topic, leader)
    finally:
        for node_id in followers:
            probe.resume(node_id)
    await assert_settled(probe, topic)
    values = await all_values(probe, topic)

    assert (alone.error_code, alone.base_offset) == (0, 1)
    assert together.error_code == error_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    assert together.outcome == leader_pb.PRODUCE_OUTCOME_MAY_APPEAR
    assert (values_of(seen.records), seen.high_watermark) == ([b"a"], 1)
    assert (at_hw.error_code, at_hw.records) == (0, b"")
    assert end.offset == 1
    assert values[:2] == [b"a", b"b"]


async def test_an_observer_replicates_and_is_never_counted(probe: Probe, topic: str) -> None:
    """A node with the follower role alone holds the log and serves it, and is in no ISR and no assignment (M60)."""
    await probe.create_topic(topic)
    await append(probe, topic, b"a", b"b")

    async def has_it() -> bool:
        return (await probe.replica(topic, OBSERVER)).hw == 2

    await until(has_it, "the observer's HW is 2")
    seen = await fetch_at_follower(probe, OBSERVER, topic)
    now = await probe.partition(topic)
    described = await probe.described(topic, now.leader_id)

    assert values_of(seen.records) == [b"a", b"b"]
    assert list(now.observers) == [OBSERVER]
    assert OBSERVER not in [*now.replicas, *now.isr, *now.elr]
    assert [row.observer for row in described.replicas if row.replica_id == OBSERVER] == [True]


@pytest.mark.slow
async def test_the_death_of_an_observer_changes_nothing(probe: Probe, topic: str) -> None:
    """Without its observer a partition acknowledges as before, and the observer catches up after its return."""
    await probe.create_topic(topic)
    before = await probe.partition(topic)
    probe.local.kill_node(OBSERVER)
    for _ in range(20):
        await append(probe, topic, b"x" * 1_000)
    after = await probe.partition(topic)
    await probe.restart(OBSERVER)

    async def has_it() -> bool:
        return (await probe.replica(topic, OBSERVER)).hw == 20

    await until(has_it, "the observer has caught up")

    assert (after.leader_epoch, list(after.isr)) == (before.leader_epoch, list(before.isr))
