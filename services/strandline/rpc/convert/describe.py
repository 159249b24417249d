"""A leader's view of its partitions and a replica's view of itself on the wire.

Invariant: these answers only show state; nothing in the protocol reads them back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Endpoint, LeaderHint, PartitionView, ReplicaStateView, ReplicaView
from strandline.core.types import NodeId, TopicPartition
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.errors import Topics, Unresolved, write_error, write_leader
from strandline.v1 import controller_service_pb2 as pb, follower_service_pb2, leader_service_pb2, partition_pb2

_STATES = {
    "truncating": follower_service_pb2.FETCH_STATE_TRUNCATING,
    "restarting": follower_service_pb2.FETCH_STATE_TRUNCATING,
    "fetching": follower_service_pb2.FETCH_STATE_FETCHING,
    "failed": follower_service_pb2.FETCH_STATE_FAILED,
    "leading": follower_service_pb2.FETCH_STATE_LEADING,
    "waiting": follower_service_pb2.FETCH_STATE_WAITING,
}


_REPLICA = ByName(
    ReplicaView,
    leader_service_pb2.DescribedRemoteReplica,
    node_id="replica_id",
    remote_leo="log_end_offset",
    is_observer="observer",
)
_LEAD = ByName(
    PartitionView,
    leader_service_pb2.DescribedPartition,
    tp=None,
    leo="log_end_offset",
    durable_leo="durable_log_end_offset",
    min_isr="min_insync_replicas",
    replicas=None,
)
_SELF = ByName(
    ReplicaStateView,
    follower_service_pb2.DescribedReplica,
    tp=None,
    leo="log_end_offset",
    durable_leo="durable_log_end_offset",
    fetch_state=As("fetch_state", lambda state: _STATES.get(state, follower_service_pb2.FETCH_STATE_UNSPECIFIED)),
    reason="failed_reason",
    leader="leader_id",
    epochs=As("epoch_entries", lambda epochs: [partition_pb2.EpochEntry(epoch=e, start_offset=o) for e, o in epochs]),
)


class DescribedLead(NamedTuple):
    """A led partition, with the figures that come from its files; ``lag_bytes`` by follower."""

    view: PartitionView
    size_bytes: int
    lag_bytes: dict[NodeId, int]
    retention_waits_until_ms: int | None = None


class DescribedSelf(NamedTuple):
    """A replica's own state with the bytes of its segment files."""

    view: ReplicaStateView
    size_bytes: int


class NotDescribed(NamedTuple):
    """A partition that this node cannot describe, and why."""

    tp: TopicPartition
    refusal: Refusal
    hint: LeaderHint | None = None


def selected(
    asked: Iterable[partition_pb2.TopicPartitions], topics: Topics, held: Iterable[TopicPartition]
) -> tuple[list[TopicPartition], list[Unresolved]]:
    """The partitions that a Describe asks for: without topics all held ones, for a bare topic all held ones of it."""
    everything = sorted(held)
    found: list[TopicPartition] = []
    unresolved: list[Unresolved] = []
    named = False
    for topic in asked:
        named = True
        topic_id = topics.resolve(topic.topic, topic.topic_id)
        if isinstance(topic_id, Refusal):
            unresolved.extend(
                Unresolved(topic.topic, topic.topic_id, index, topic_id) for index in topic.partitions or (0,)
            )
        elif topic.partitions:
            found.extend(TopicPartition(topic_id, index) for index in topic.partitions)
        else:
            found.extend(tp for tp in everything if tp.topic_id == topic_id)
    return (found if named else everything), unresolved


def partitions_response(
    described: Iterable[DescribedLead | NotDescribed],
    unresolved: Iterable[Unresolved],
    topics: Topics,
    *,
    node_id: NodeId,
    node_epoch: int | None,
) -> leader_service_pb2.DescribePartitionsResponse:
    """The answer of DescribePartitions."""
    response = leader_service_pb2.DescribePartitionsResponse(node_id=node_id, node_epoch=node_epoch)
    rows: dict[str, leader_service_pb2.DescribedPartitionTopic] = {}
    for item in described:
        tp = item.view.tp if isinstance(item, DescribedLead) else item.tp
        topic = rows.get(tp.topic_id)
        if topic is None:
            topic = rows[tp.topic_id] = response.topics.add(topic=topics.name_of(tp.topic_id), topic_id=tp.topic_id)
        if isinstance(item, DescribedLead):
            topic.partitions.append(_write_lead(item))
        else:
            row = topic.partitions.add(partition_index=tp.partition)
            write_error(row, item.refusal)
            if item.hint is not None:
                write_leader(row.current_leader, item.hint, topics)
    for lost in unresolved:
        topic = response.topics.add(topic=lost.name, topic_id=lost.topic_id)
        write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)
    return response


def _write_lead(item: DescribedLead) -> leader_service_pb2.DescribedPartition:
    view = item.view
    replicas = [
        _REPLICA.write(
            replica,
            lag_records=None if replica.remote_leo is None else max(view.leo - replica.remote_leo, 0),
            lag_bytes=item.lag_bytes.get(replica.node_id),
        )
        for replica in view.replicas
    ]
    return _LEAD.write(
        view,
        partition_index=view.tp.partition,
        log_size_bytes=item.size_bytes,
        retention_waits_until_ms=item.retention_waits_until_ms,
        replicas=replicas,
    )


def replicas_response(
    described: Iterable[DescribedSelf | NotDescribed],
    unresolved: Iterable[Unresolved],
    topics: Topics,
    *,
    node_id: NodeId,
    node_epoch: int | None,
) -> follower_service_pb2.DescribeReplicasResponse:
    """The answer of DescribeReplicas."""
    response = follower_service_pb2.DescribeReplicasResponse(node_id=node_id, node_epoch=node_epoch)
    rows: dict[str, follower_service_pb2.DescribedReplicaTopic] = {}
    for item in described:
        tp = item.view.tp if isinstance(item, DescribedSelf) else item.tp
        topic = rows.get(tp.topic_id)
        if topic is None:
            topic = rows[tp.topic_id] = response.topics.add(topic=topics.name_of(tp.topic_id), topic_id=tp.topic_id)
        if isinstance(item, DescribedSelf):
            row = _SELF.write(item.view, partition_index=tp.partition, log_size_bytes=item.size_bytes)
            topic.partitions.append(row)
        else:
            row = topic.partitions.add(partition_index=tp.partition)
            write_error(row, item.refusal)
    for lost in unresolved:
        topic = response.topics.add(topic=lost.name, topic_id=lost.topic_id)
        write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)
    return response


def not_held(tp: TopicPartition) -> NotDescribed:
    """The answer for a partition of which this node holds no replica."""
    refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp.partition} is not on this node")
    return NotDescribed(tp, refusal)


# ---- convert_controllers
# Controllers on the wire, as `DescribeControllers` answers them.
#
# Invariant: the list is in the order of the ids.


class ControllerDescribed(NamedTuple):
    """One controller, as any controller describes it."""

    controller_id: str
    client: Endpoint
    internal: Endpoint
    is_active: bool
    offset: int
    lag: int


def write_controllers(controllers: Iterable[ControllerDescribed]) -> pb.DescribeControllersResponse:
    """The answer of DescribeControllers."""
    message = pb.DescribeControllersResponse()
    for one in sorted(controllers):
        described = message.controllers.add(
            controller_id=one.controller_id, is_active=one.is_active, metadata_offset=one.offset, lag=one.lag
        )
        described.client.host, described.client.port = one.client
        described.internal.host, described.internal.port = one.internal
    return message


def read_controllers(message: pb.DescribeControllersResponse) -> tuple[ControllerDescribed, ...]:
    """The controllers of an answer."""
    return tuple(
        ControllerDescribed(
            one.controller_id,
            Endpoint(one.client.host, one.client.port),
            Endpoint(one.internal.host, one.internal.port),
            one.is_active,
            one.metadata_offset,
            one.lag,
        )
        for one in message.controllers
    )
