"""A whole cluster, or its controller, stops and returns, and deleted records stay deleted (C100, I27)."""

from __future__ import annotations

import asyncio
import time

import pytest
from client_load import Load
from raw_records import append, fetch, values_of
from running_cluster import CALL_S, Probe, until
from settled_logs import assert_settled

from strandline.v1 import error_pb2, leader_service_pb2 as pb
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


# DeleteRecords on real processes: deleted records stay deleted through leader changes and restarts (C100, I27).


RECORDS = [b"r%d" % number for number in range(10)]


async def delete(
    probe: Probe, node_id: int, topic: str, offset: int, *, timeout_ms: int = 4_000
) -> pb.DeleteRecordsPartitionResult:
    """A node's answer to a deletion in partition 0."""
    part = pb.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = pb.DeleteRecordsRequest(
        topics=[pb.DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=timeout_ms
    )
    answer = await probe.leader_service(node_id).DeleteRecords(request, timeout=CALL_S)
    return answer.topics[0].partitions[0]


async def log_starts(probe: Probe, topic: str) -> set[int]:
    """The log starts of all three replicas."""
    return {(await probe.own_view(topic, node_id)).log_start_offset for node_id in (1, 2, 3)}


async def test_every_replica_deletes_and_readers_hear_where_the_log_begins(probe: Probe, topic: str) -> None:
    """The answer is sent when all replicas have followed; below the new start a consumer gets OFFSET_OUT_OF_RANGE."""
    await probe.create_topic(topic)
    await append(probe, topic, *RECORDS)
    leader = await probe.leader(topic)
    deleted = await delete(probe, leader, topic, 4)
    starts = await log_starts(probe, topic)
    below, above = await fetch(probe, leader, topic, 3), await fetch(probe, leader, topic, 4)

    assert (deleted.error_code, deleted.low_watermark) == (0, 4)
    assert starts == {4}
    assert below.error_code == error_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    assert "log start 4" in below.error_message
    assert above.error_code == 0


async def test_an_offset_above_the_high_watermark_deletes_nothing(probe: Probe, topic: str) -> None:
    """Above the HW it is OFFSET_OUT_OF_RANGE, from a follower with the leader's name, and every log begins at 0."""
    await probe.create_topic(topic)
    await append(probe, topic, *RECORDS)
    leader = await probe.leader(topic)
    follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    too_high, elsewhere = await delete(probe, leader, topic, 11), await delete(probe, follower, topic, 4)

    assert too_high.error_code == error_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    assert elsewhere.error_code == error_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert f"node {leader} leads it" in elsewhere.error_message
    assert await log_starts(probe, topic) == {0}


async def test_a_stopped_member_of_the_isr_is_waited_for(probe: Probe, topic: str) -> None:
    """Until the replica leaves the ISR or follows, the answer is REQUEST_TIMED_OUT with the low watermark so far."""
    await probe.create_topic(topic)
    await append(probe, topic, *RECORDS)
    leader = await probe.leader(topic)
    stopped = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    probe.pause(stopped)
    try:
        late = await delete(probe, leader, topic, 4, timeout_ms=200)
    finally:
        probe.resume(stopped)
    again = await delete(probe, leader, topic, 4)

    assert (late.error_code, late.low_watermark) == (error_pb2.ERROR_CODE_REQUEST_TIMED_OUT, 0)
    assert (again.error_code, again.low_watermark) == (0, 4)


@pytest.mark.slow
async def test_deleted_records_survive_neither_a_change_of_leader_nor_restarts(probe: Probe, topic: str) -> None:
    """The leader is killed right after the answer; the next leader, and the old one after its return, begin there."""
    await probe.create_topic(topic)
    await append(probe, topic, *RECORDS)
    leader = await probe.leader(topic)
    deleted = await delete(probe, leader, topic, -1)
    probe.local.kill_node(leader)
    successor = await probe.leader(topic, other_than=leader)
    await probe.writable(topic)
    begins = (await fetch(probe, successor, topic, 9)).error_code
    await probe.restart(leader)

    async def whole() -> bool:
        return await log_starts(probe, topic) == {10}

    await until(whole, "every log begins at 10")
    base_offset = await append(probe, topic, b"new")
    read = await fetch(probe, await probe.leader(topic), topic, 10)

    assert (deleted.error_code, deleted.low_watermark) == (0, 10)
    assert begins == error_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    assert (base_offset, values_of(read.records)) == (10, [b"new"])
