"""Nodes' answers to Describe calls, read into the console's picture.

The client's own reading leaves out bytes, which people want to see here. Invariant: a row with an error is left out,
never read as zeros.
"""

from __future__ import annotations

from strandline.console.picture import HeldReplica, LedPartition, RemoteReplica
from strandline.core.types import LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.v1 import follower_service_pb2, leader_service_pb2

_FETCH_STATES: dict[int, str] = {
    follower_service_pb2.FETCH_STATE_TRUNCATING: "truncating",
    follower_service_pb2.FETCH_STATE_FETCHING: "fetching",
    follower_service_pb2.FETCH_STATE_FAILED: "failed",
    follower_service_pb2.FETCH_STATE_LEADING: "leading",
    follower_service_pb2.FETCH_STATE_WAITING: "waiting",
}


def read_led(answer: leader_service_pb2.DescribePartitionsResponse) -> dict[TopicPartition, LedPartition]:
    """The partitions that the answering node leads."""
    return {
        TopicPartition(topic.topic_id, row.partition_index): LedPartition(
            leader_epoch=LeaderEpoch(row.leader_epoch),
            leo=Offset(row.log_end_offset),
            hw=Offset(row.high_watermark),
            log_start=Offset(row.log_start_offset),
            size_bytes=row.log_size_bytes,
            replicas=tuple(_read_remote(remote) for remote in row.replicas),
            lso=Offset(row.last_stable_offset) if row.HasField("last_stable_offset") else None,
            open_producer_id=row.oldest_open_producer_id if row.HasField("oldest_open_producer_id") else None,
        )
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code
    }


def _read_remote(row: leader_service_pb2.DescribedRemoteReplica) -> RemoteReplica:
    return RemoteReplica(
        node_id=NodeId(row.replica_id),
        leo=Offset(row.log_end_offset) if row.HasField("log_end_offset") else None,
        lag_records=row.lag_records if row.HasField("lag_records") else None,
        lag_bytes=row.lag_bytes if row.HasField("lag_bytes") else None,
        last_fetch_age_ms=row.last_fetch_age_ms if row.HasField("last_fetch_age_ms") else None,
        last_caught_up_age_ms=row.last_caught_up_age_ms if row.HasField("last_caught_up_age_ms") else None,
    )


def read_held(answer: follower_service_pb2.DescribeReplicasResponse) -> dict[TopicPartition, HeldReplica]:
    """The replicas that the answering node holds, as it sees them."""
    return {
        TopicPartition(topic.topic_id, row.partition_index): HeldReplica(
            leo=Offset(row.log_end_offset),
            hw=Offset(row.high_watermark),
            fetch_state=_FETCH_STATES.get(row.fetch_state, "unknown"),
            reason=row.failed_reason,
        )
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code
    }
