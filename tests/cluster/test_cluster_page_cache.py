"""`durability=page-cache`: a node that lost its tail reports it, and the outcome is a decision, not an accident."""

from __future__ import annotations

import os
from functools import partial

import pytest
from raw_records import all_values, append, batch, produce
from running_cluster import CALL_S, Probe, until
from settled_logs import assert_settled

from strandline.storage.directory import CLEAN_NAME
from strandline.storage.inspect import dump_log
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1 import error_pb2, partition_pb2

CLUSTER = {"nodes": 2, "rules": {"durability": "page-cache"}}
KEPT = 5


async def a_lost_tail(probe: Probe, topic: str) -> None:
    """Ten records on both; 2 stops, then 1; five records and the mark of the clean stop are removed from 1's disk."""
    for number in range(10):
        await append(probe, topic, b"old %d" % number)
    await assert_settled(probe, topic)
    await probe.local.nodes[2].stop(15_000)

    async def alone() -> bool:
        return list((await probe.partition(topic)).isr) == [1]

    await until(alone, "node 1 is alone in the ISR")
    await probe.local.nodes[1].stop(15_000)
    directory = probe.local.nodes[1].directory
    first_lost = list(dump_log(directory / f"{topic}-0"))[KEPT]
    os.truncate(first_lost.path, first_lost.position)
    (directory / CLEAN_NAME).unlink()
    await probe.restart(1)
    await until(partial(probe.is_unfenced, 1), "node 1 is unfenced")


async def unclean_election(probe: Probe, topic: str) -> pb.ElectionPartitionResult:
    """An operator accepts the loss."""
    request = pb.ElectLeadersRequest(
        election_type=pb.ELECTION_TYPE_UNCLEAN,
        topic_partitions=[partition_pb2.TopicPartitions(topic=topic, partitions=[0])],
        timeout_ms=5_000,
    )
    answer = await probe.controller.ElectLeaders(request, timeout=CALL_S * 2)
    return answer.replica_election_results[0].partition_result[0]


@pytest.mark.timeout(120)
async def test_after_an_unclean_election_logs_do_not_diverge(probe: Probe, topic: str) -> None:
    """T37, TR2b: the node without the tail leads, continues from there, and the other truncates its extra records."""
    await probe.create_topic(topic, assignment=[1, 2], unclean_leader_election_enable="true")
    await a_lost_tail(probe, topic)
    leader = await probe.leader(topic)
    offsets = [await append(probe, topic, b"new %d" % number) for number in range(9)]
    await probe.restart(2)
    records = await assert_settled(probe, topic)
    values = await all_values(probe, topic)

    assert leader == 1
    assert offsets == list(range(KEPT, KEPT + 9))
    assert records == KEPT + 9
    assert values == [b"old %d" % number for number in range(KEPT)] + [b"new %d" % number for number in range(9)]


@pytest.mark.timeout(120)
async def test_without_unclean_election_it_stays_offline_until_requested(probe: Probe, topic: str) -> None:
    """T37, the second variant: no node leads, not even with all nodes back, until an operator accepts the loss."""
    await probe.create_topic(topic, assignment=[1, 2])
    await a_lost_tail(probe, topic)
    alone = await probe.partition(topic)
    await probe.everybody()
    whole = await probe.partition(topic)
    refused = await produce(probe, 1, topic, batch(b"new"))
    elected = await unclean_election(probe, topic)
    await probe.writable(topic)
    await append(probe, topic, b"new")
    await assert_settled(probe, topic)
    values = await all_values(probe, topic)

    assert not alone.HasField("leader_id")
    assert not whole.HasField("leader_id")
    assert list(whole.isr) == list(whole.elr) == []
    assert refused.error_code == error_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert elected.error_code == 0, elected.error_message
    assert values[-1] == b"new"
    assert values[:-1] == [b"old %d" % number for number in range(len(values) - 1)]
    assert len(values) - 1 in (KEPT, 10)
