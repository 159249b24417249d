"""Requests in the name of a real node, with numbers that it never had: nothing is acknowledged, nothing stops."""

from __future__ import annotations

import asyncio

import pytest
from raw_records import append, batch, produce
from running_cluster import CALL_S, Probe
from settled_logs import assert_settled

from strandline.v1 import controller_service_pb2 as pb
from strandline.v1 import error_pb2, leader_service_pb2, metadata_pb2, partition_pb2

CLUSTER = {"nodes": 3}

ABOVE_ALL = 1 << 30


async def test_a_forged_fetch_acknowledges_nothing(probe: Probe, topic: str) -> None:
    """F2: the first fetch of an epoch in a stopped follower's name claims the LEO; the record stays uncommitted."""
    created = await probe.create_topic(topic, assignment=[1, 2, 3])
    await append(probe, topic, b"everywhere")
    await assert_settled(probe, topic)
    metadata = await probe.metadata()
    silent = await probe.node(3)
    # Stopped before there is a new leader: any fetch in its name in that epoch is forged.
    probe.pause(3)
    probe.local.kill_node(1)
    now = await probe.new_epoch(topic, 0)
    waiting = asyncio.create_task(produce(probe, 2, topic, batch(b"only here"), timeout_ms=1_000))
    forged = leader_service_pb2.FetchRequest(
        cluster_id=metadata.cluster_id,
        replica_state=partition_pb2.ReplicaState(replica_id=3, replica_epoch=silent.node_epoch),
        max_wait_ms=0,
        topics=[
            partition_pb2.FetchTopic(
                topic_id=created.topic_id,
                partitions=[
                    partition_pb2.FetchPartition(
                        partition=0,
                        fetch_offset=2,
                        current_leader_epoch=now.leader_epoch,
                        last_fetched_epoch=now.leader_epoch,
                        log_start_offset=0,
                    )
                ],
            )
        ],
    )
    answered = [await probe.leader_service(2).Fetch(forged, timeout=CALL_S) for _ in range(5)]
    answer = await waiting
    seen = await probe.replica(topic, 2)
    probe.resume(3)
    await probe.everybody()
    await assert_settled(probe, topic)

    assert answer.error_code == error_pb2.ERROR_CODE_REQUEST_TIMED_OUT, answer
    assert (seen.leo, seen.hw) == (2, 1)
    assert len(answered) == 5


def refused_proposal(
    metadata: metadata_pb2.ClusterMetadata, topic: metadata_pb2.TopicMetadata, sequence: int
) -> pb.AlterPartitionRequest:
    """A proposal in the leader's name that the controller rejects, with a sequence that the forger chooses."""
    now = topic.partitions[0]
    row = pb.AlterPartitionProposal(
        partition_index=0, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch + 7
    )
    return pb.AlterPartitionRequest(
        node_id=now.leader_id,
        node_epoch=next(node.node_epoch for node in metadata.nodes if node.node_id == now.leader_id),
        cluster_id=metadata.cluster_id,
        controller_epoch=metadata.controller_epoch,
        request_sequence=sequence,
        topics=[pb.AlterPartitionTopic(topic_id=topic.topic_id, partitions=[row])],
    )


@pytest.mark.parametrize("ahead", [5, ABOVE_ALL], ids=["a_little_ahead", "far_ahead"])
async def test_a_refused_proposal_of_a_stranger_stops_no_isr_change(probe: Probe, topic: str, ahead: int) -> None:
    """F3: after a rejected AlterPartition with a sequence above the leader's, its ISR shrinks and expands."""
    created = await probe.create_topic(topic, assignment=[1, 2, 3])
    await append(probe, topic, b"before")
    metadata = await probe.metadata()
    # Number 0 is rejected with the last one of this leader, unless it has sent none.
    last = await probe.controller.AlterPartition(refused_proposal(metadata, created, 0), timeout=CALL_S)
    answer = await probe.controller.AlterPartition(
        refused_proposal(metadata, created, last.last_request_sequence + ahead), timeout=CALL_S
    )
    probe.local.kill_node(3)
    await probe.restart(3)
    await append(probe, topic, b"after")
    await assert_settled(probe, topic)

    assert not answer.error_code, answer.error_message
    assert answer.topics[0].partitions[0].error_code != 0


async def test_a_claim_without_a_proof_stops_nobody(probe: Probe, topic: str) -> None:
    """F5: a heartbeat with a metadata offset that no node was sent is rejected, and the controller continues."""
    await probe.create_topic(topic)
    metadata, node = await probe.metadata(), await probe.node(1)
    request = pb.HeartbeatRequest(
        node_id=1,
        node_epoch=node.node_epoch,
        cluster_id=metadata.cluster_id,
        current_metadata_offset=metadata.metadata_offset + ABOVE_ALL,
    )
    with pytest.raises(Exception, match="only this node is refused") as refused:
        await probe.controller.Heartbeat(request, timeout=CALL_S)
    await append(probe, topic, b"after")
    probe.local.kill_node(2)
    await probe.restart(2)
    await assert_settled(probe, topic)

    assert "no valid proof" in str(refused.value)
