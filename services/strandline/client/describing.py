"""A leader's and a replica's own view of a partition, read from the wire.

Invariant: a row with an error becomes a refusal, never a view with zeros in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from strandline.core.errors import Refusal
from strandline.core.messages import PartitionView, ReplicaStateView, ReplicaView
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, TopicPartition
from strandline.rpc.convert_errors import read_error
from strandline.v1 import follower_service_pb2, leader_service_pb2

_STATES: dict[int, str] = {
    follower_service_pb2.FETCH_STATE_TRUNCATING: "truncating",
    follower_service_pb2.FETCH_STATE_FETCHING: "fetching",
    follower_service_pb2.FETCH_STATE_FAILED: "failed",
    follower_service_pb2.FETCH_STATE_LEADING: "leading",
    follower_service_pb2.FETCH_STATE_WAITING: "waiting",
}


class DescribedReplica(NamedTuple):
    """One replica as its own node sees it; ``view`` is None with a ``refusal``."""

    node_id: NodeId
    topic: str
    tp: TopicPartition
    size_bytes: int
    view: ReplicaStateView | None
    refusal: Refusal | None


def read_partition_views(response: leader_service_pb2.DescribePartitionsResponse) -> list[PartitionView]:
    """The partitions the node leads; rows with an error are left out."""
    return [
        _read_partition(TopicPartition(topic.topic_id, row.partition_index), row)
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code
    ]


def _read_partition(tp: TopicPartition, row: leader_service_pb2.DescribedPartition) -> PartitionView:
    return PartitionView(
        tp=tp,
        leader_epoch=LeaderEpoch(row.leader_epoch),
        partition_epoch=PartitionEpoch(row.partition_epoch),
        epoch_start_offset=Offset(row.epoch_start_offset),
        leo=Offset(row.log_end_offset),
        durable_leo=Offset(row.durable_log_end_offset),
        high_watermark=Offset(row.high_watermark),
        log_start_offset=Offset(row.log_start_offset),
        isr=_nodes(row.isr),
        maximal_isr=_nodes(row.maximal_isr),
        elr=_nodes(row.elr),
        min_isr=row.min_insync_replicas,
        replicas=tuple(_read_remote(replica) for replica in row.replicas),
    )


def _nodes(ids: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(node_id) for node_id in ids)


def _read_remote(row: leader_service_pb2.DescribedRemoteReplica) -> ReplicaView:
    return ReplicaView(
        node_id=NodeId(row.replica_id),
        node_epoch=NodeEpoch(row.node_epoch) if row.HasField("node_epoch") else None,
        remote_leo=Offset(row.log_end_offset) if row.HasField("log_end_offset") else None,
        last_fetch_age_ms=row.last_fetch_age_ms if row.HasField("last_fetch_age_ms") else None,
        last_caught_up_age_ms=row.last_caught_up_age_ms if row.HasField("last_caught_up_age_ms") else None,
        in_isr=row.in_isr,
        is_observer=row.observer,
    )


def read_replica_views(response: follower_service_pb2.DescribeReplicasResponse) -> Iterator[DescribedReplica]:
    """Every replica the node was asked for, with its view or why there is none."""
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.topic_id, row.partition_index)
            refusal = read_error(row)
            view = None if refusal is not None else _read_self(tp, row)
            yield DescribedReplica(NodeId(response.node_id), topic.topic, tp, row.log_size_bytes, view, refusal)


def _read_self(tp: TopicPartition, row: follower_service_pb2.DescribedReplica) -> ReplicaStateView:
    return ReplicaStateView(
        tp=tp,
        leo=Offset(row.log_end_offset),
        durable_leo=Offset(row.durable_log_end_offset),
        high_watermark=Offset(row.high_watermark),
        log_start_offset=Offset(row.log_start_offset),
        fetch_state=_STATES.get(row.fetch_state, "unknown"),
        reason=row.failed_reason,
        leader=NodeId(row.leader_id) if row.HasField("leader_id") else None,
        leader_epoch=LeaderEpoch(row.leader_epoch if row.HasField("leader_epoch") else -1),
        epochs=tuple((LeaderEpoch(entry.epoch), Offset(entry.start_offset)) for entry in row.epoch_entries),
    )
