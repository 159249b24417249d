"""A leader's and a replica's own view of a partition, read from the wire.

Invariant: a row with an error becomes a refusal, never a view with zeros in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.client.described import DescribedFollower, DescribedLeader, DescribedReplica, ReplicaState
from strandline.rpc.convert_errors import read_error
from strandline.v1 import follower_service_pb2, leader_service_pb2

_STATES: dict[int, str] = {
    follower_service_pb2.FETCH_STATE_TRUNCATING: "truncating",
    follower_service_pb2.FETCH_STATE_FETCHING: "fetching",
    follower_service_pb2.FETCH_STATE_FAILED: "failed",
    follower_service_pb2.FETCH_STATE_LEADING: "leading",
    follower_service_pb2.FETCH_STATE_WAITING: "waiting",
}


def read_leaders(response: leader_service_pb2.DescribePartitionsResponse) -> list[DescribedLeader]:
    """The partitions the node leads; rows with an error are left out."""
    return [
        _read_leader(topic.topic, row) for topic in response.topics for row in topic.partitions if not row.error_code
    ]


def _read_leader(topic: str, row: leader_service_pb2.DescribedPartition) -> DescribedLeader:
    return DescribedLeader(
        topic=topic,
        partition=row.partition_index,
        leader_epoch=row.leader_epoch,
        partition_epoch=row.partition_epoch,
        epoch_start_offset=row.epoch_start_offset,
        leo=row.log_end_offset,
        durable_leo=row.durable_log_end_offset,
        high_watermark=row.high_watermark,
        log_start_offset=row.log_start_offset,
        isr=tuple(row.isr),
        maximal_isr=tuple(row.maximal_isr),
        elr=tuple(row.elr),
        min_isr=row.min_insync_replicas,
        replicas=tuple(_read_follower(replica) for replica in row.replicas),
        last_stable_offset=row.last_stable_offset if row.HasField("last_stable_offset") else None,
        oldest_open_producer_id=row.oldest_open_producer_id if row.HasField("oldest_open_producer_id") else None,
        retention_waits_until_ms=row.retention_waits_until_ms if row.HasField("retention_waits_until_ms") else None,
    )


def _read_follower(row: leader_service_pb2.DescribedRemoteReplica) -> DescribedFollower:
    return DescribedFollower(
        node_id=row.replica_id,
        node_epoch=row.node_epoch if row.HasField("node_epoch") else None,
        remote_leo=row.log_end_offset if row.HasField("log_end_offset") else None,
        last_fetch_age_ms=row.last_fetch_age_ms if row.HasField("last_fetch_age_ms") else None,
        last_caught_up_age_ms=row.last_caught_up_age_ms if row.HasField("last_caught_up_age_ms") else None,
        in_isr=row.in_isr,
        is_observer=row.observer,
    )


def read_replicas(response: follower_service_pb2.DescribeReplicasResponse) -> Iterator[DescribedReplica]:
    """Every replica the node was asked for, with its view or why there is none."""
    for topic in response.topics:
        for row in topic.partitions:
            refusal = read_error(row)
            view = None if refusal is not None else _read_self(row)
            yield DescribedReplica(
                response.node_id, topic.topic, row.partition_index, row.log_size_bytes, view, refusal
            )


def _read_self(row: follower_service_pb2.DescribedReplica) -> ReplicaState:
    return ReplicaState(
        leo=row.log_end_offset,
        durable_leo=row.durable_log_end_offset,
        high_watermark=row.high_watermark,
        log_start_offset=row.log_start_offset,
        fetch_state=_STATES.get(row.fetch_state, "unknown"),
        reason=row.failed_reason,
        leader=row.leader_id if row.HasField("leader_id") else None,
        leader_epoch=row.leader_epoch if row.HasField("leader_epoch") else -1,
        epochs=tuple((entry.epoch, entry.start_offset) for entry in row.epoch_entries),
    )
