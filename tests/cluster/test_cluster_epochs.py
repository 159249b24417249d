"""Leader epochs across real restarts: their starts are the same on all replicas, and truncation follows them.

The rows are Kafka's own tests, by their numbers in PROTOCOL.md#edge-cases; the tests assert the order and the ends,
because Strandline has its own rule for which restart bumps which epoch (M56).
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from raw_records import all_values, append, batch, produce
from running_cluster import CALL_S, Probe, until
from settled_logs import assert_settled

from strandline.v1 import controller_service_pb2 as controller_pb, error_pb2, leader_service_pb2 as leader_pb

CLUSTER = {"nodes": 3}


async def bounce(probe: Probe, node_id: int) -> None:
    """Stops a node cleanly and starts it again."""
    await probe.local.nodes[node_id].stop(15_000)
    await probe.everybody()


async def epoch_end(probe: Probe, node_id: int, topic: str, epoch: int) -> tuple[int, int]:
    """(epoch, end offset) in the leader's answer for ``epoch``."""
    row = leader_pb.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    asked = leader_pb.OffsetForLeaderTopic(topic=topic, partitions=[row])
    answer = await probe.leader_service(node_id).OffsetForLeaderEpoch(
        leader_pb.OffsetForLeaderEpochRequest(topics=[asked]), timeout=CALL_S
    )
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0, found.error_message
    return found.leader_epoch, found.end_offset


async def test_a_restart_bumps_the_epoch_and_old_ends_stay(probe: Probe, topic: str) -> None:
    """T7: one replica, restarted twice; every epoch ends where the next one's first record lies."""
    await probe.create_topic(topic, assignment=[1])
    epochs = []
    for number in range(3):
        if number:
            await bounce(probe, 1)
            await probe.in_sync(topic)
        epochs.append((await probe.partition(topic)).leader_epoch)
        await append(probe, topic, b"record %d" % number)
    ends = [await epoch_end(probe, 1, topic, epoch) for epoch in epochs]
    between = [await epoch_end(probe, 1, topic, epoch) for epoch in range(epochs[0], epochs[-1] + 1)]

    assert epochs == sorted(set(epochs))
    assert ends == [(epoch, number + 1) for number, epoch in enumerate(epochs)]
    assert set(between) == set(ends)
    assert between == sorted(between)


async def test_followers_take_over_epochs_with_the_records(probe: Probe, topic: str) -> None:
    """T36: a restarted follower changes no epoch; a restarted leader's successor begins one at its LEO.

    The follower has the new epoch with the first record.
    """
    await probe.create_topic(topic, assignment=[1, 2])
    await append(probe, topic, b"1")
    first = (await probe.partition(topic)).leader_epoch
    await assert_settled(probe, topic)
    fresh = [(await probe.replica(topic, node_id)).epochs for node_id in (1, 2)]
    await bounce(probe, 2)
    await probe.in_sync(topic)
    after_follower = (await probe.partition(topic)).leader_epoch
    await append(probe, topic, b"2")
    await bounce(probe, 1)
    await probe.in_sync(topic)
    now = await probe.partition(topic)
    leader, other = now.leader_id, 3 - now.leader_id
    unwritten = [(await probe.replica(topic, node_id)).epochs for node_id in (leader, other)]
    await append(probe, topic, b"3")
    await assert_settled(probe, topic)
    written = [(await probe.replica(topic, node_id)).epochs for node_id in (leader, other)]

    assert fresh == [((first, 0),)] * 2
    assert after_follower == first
    assert now.leader_epoch > first
    assert unwritten[0][-1] == (now.leader_epoch, 2)
    assert (now.leader_epoch, 2) not in unwritten[1]
    assert written[0][-1] == (now.leader_epoch, 2)
    assert (now.leader_epoch, 2) in written[1]


async def without_a_record(probe: Probe, topic: str) -> None:
    """Node 2 misses the record "second": it is down while node 1 takes it, then node 1 goes and 2 returns."""
    await append(probe, topic, b"first")
    probe.local.kill_node(2)

    async def shrunk() -> bool:
        return list((await probe.partition(topic)).isr) == [1]

    await until(shrunk, "node 2 left the ISR")
    await append(probe, topic, b"second")
    probe.local.kill_node(1)
    await until(partial(probe.is_fenced, 1), "node 1 is fenced")
    await probe.restart(2)


@pytest.mark.timeout(120)
async def test_an_unclean_election_loses_what_it_must_and_nothing_diverges(probe: Probe, topic: str) -> None:
    """T40, unclean on: the replica without "second" leads; the log is first, third, also on the replica that had it."""
    await probe.create_topic(topic, assignment=[1, 2], unclean_leader_election_enable="true")
    await without_a_record(probe, topic)
    leader = await probe.leader(topic, other_than=1)
    await probe.writable(topic)
    answered = await append(probe, topic, b"third")
    elected = await probe.partition(topic)
    await probe.restart(1)
    await probe.in_sync(topic)
    values = await all_values(probe, topic)
    await assert_settled(probe, topic)

    assert (leader, answered) == (2, 1)
    assert elected.last_unclean_leader_epoch == elected.leader_epoch
    assert values == [b"first", b"third"]


@pytest.mark.timeout(120)
async def test_without_unclean_election_the_partition_waits(probe: Probe, topic: str) -> None:
    """T40, unclean off: no node leads and nothing is accepted until the replica with "second" is back.

    Then a clean election keeps all three records.
    """
    await probe.create_topic(topic, assignment=[1, 2])
    await without_a_record(probe, topic)
    await until(partial(probe.is_unfenced, 2), "node 2 is unfenced")
    waiting = await probe.partition(topic)
    refused = await produce(probe, 2, topic, batch(b"lost"))
    await probe.restart(1)
    await probe.writable(topic)
    await append(probe, topic, b"third")
    await probe.in_sync(topic)
    before = await probe.partition(topic)
    probe.local.kill_node(before.leader_id)
    after = await probe.new_epoch(topic, before.leader_epoch)
    values = await all_values(probe, topic)
    await probe.restart(before.leader_id)
    await assert_settled(probe, topic)

    assert not waiting.HasField("leader_id")
    assert (list(waiting.isr), list(waiting.elr)) == ([], [1])
    assert not waiting.HasField("last_unclean_leader_epoch")
    assert refused.error_code == error_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert refused.outcome == leader_pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert after.leader_id != before.leader_id
    assert not after.HasField("last_unclean_leader_epoch")
    assert values == [b"first", b"second", b"third"]


@pytest.mark.timeout(120)
async def test_a_duplicate_is_not_answered_before_it_is_committed(probe: Probe, topic: str) -> None:
    """TR20: a batch sent twice while no follower fetches it is not acknowledged either time.

    The next leader, which never had it, appends it once and returns its own offset.
    """
    await probe.create_topic(topic)
    await append(probe, topic, b"first")
    await assert_settled(probe, topic)
    now = await probe.partition(topic)
    followers = [node_id for node_id in now.replicas if node_id != now.leader_id]
    identity = await probe.controller.InitProducerId(controller_pb.InitProducerIdRequest(), timeout=CALL_S)
    twice = batch(b"twice", producer=(identity.producer_id, identity.producer_epoch), sequence=0)
    for node_id in followers:
        # Paused first: while their sessions last they are in the ISR, and what the leader sends them stays unread.
        probe.pause(node_id)
    answers = await asyncio.gather(*(produce(probe, now.leader_id, topic, twice, timeout_ms=300) for _ in range(2)))
    had_it = await probe.replica(topic, now.leader_id)
    # Together: two that outlive the third would be the whole ISR, and one of them could not lead without the other.
    await probe.kill_together(*followers, now.leader_id)
    await asyncio.gather(*(probe.restart(node_id) for node_id in followers))
    successor = await probe.leader(topic, other_than=now.leader_id)
    await probe.writable(topic)
    await append(probe, topic, b"between")
    again = await produce(probe, successor, topic, twice)
    once_more = await produce(probe, successor, topic, twice)
    await probe.restart(now.leader_id)
    await assert_settled(probe, topic)
    values = await all_values(probe, topic)

    assert {answer.error_code for answer in answers} == {error_pb2.ERROR_CODE_REQUEST_TIMED_OUT}
    assert {answer.outcome for answer in answers} == {leader_pb.PRODUCE_OUTCOME_MAY_APPEAR}
    assert had_it.leo == 2
    assert (again.error_code, again.base_offset) == (0, 2)
    assert (once_more.error_code, once_more.base_offset) == (0, 2)
    assert values == [b"first", b"between", b"twice"]
