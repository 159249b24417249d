"""Reassignments and drained nodes on the wire, as the controller reads and answers them.

Invariant: an absent target is a cancellation, and an empty one is an invalid target; neither is read as the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from strandline.core.control import messages
from strandline.core.control.messages import ReassignmentState, TopicRef
from strandline.core.types import NodeId
from strandline.rpc.convert.by_name import ByName
from strandline.rpc.convert.errors import write_error
from strandline.v1 import controller_service_pb2 as pb

_STATE = {
    None: pb.REASSIGNMENT_STATE_UNSPECIFIED,
    ReassignmentState.QUEUED: pb.REASSIGNMENT_STATE_QUEUED,
    ReassignmentState.RUNNING: pb.REASSIGNMENT_STATE_RUNNING,
}
DRAIN = ByName(messages.DrainNode, pb.DrainNodeRequest)
DRAINED = ByName(messages.NodeDrained, pb.DrainNodeResponse)


class _OfTopic(Protocol):
    @property
    def topic(self) -> TopicRef: ...


_Row = TypeVar("_Row", bound=_OfTopic)
_Entry = TypeVar("_Entry", pb.ReassignedTopic, pb.OngoingTopicReassignment)


def _nodes(message: pb.ReplicaList) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, message.node_ids))


def read_alter(message: pb.AlterPartitionReassignmentsRequest) -> messages.AlterPartitionReassignments:
    """Reassignments to begin, to change or to cancel."""
    wanted = (
        messages.ReassignPartition(
            TopicRef(topic.name, topic.topic_id),
            row.partition_index,
            _nodes(row.target) if row.HasField("target") else None,
            _nodes(row.planned_from) if row.HasField("planned_from") else None,
        )
        for topic in message.topics
        for row in topic.partitions
    )
    allows = message.allow_replication_factor_change
    return messages.AlterPartitionReassignments(
        cluster_id=message.cluster_id if message.HasField("cluster_id") else None,
        partitions=tuple(wanted),
        allow_factor_change=allows if message.HasField("allow_replication_factor_change") else True,
        throttle_bytes_per_s=message.throttle_bytes_per_s or None,
        validate_only=message.validate_only,
        force=message.force,
    )


def write_altered(answer: messages.PartitionsReassigned) -> pb.AlterPartitionReassignmentsResponse:
    """The results of the requested reassignments, by topic."""
    message = pb.AlterPartitionReassignmentsResponse()
    write_error(message, answer.refusal)
    for entry, result in _by_topic(answer.results, message.responses.add):
        row = entry.partitions.add(partition_index=result.partition, state=_STATE[result.state])
        write_error(row, result.refusal)
    return message


def _by_topic(rows: Sequence[_Row], add: Callable[..., _Entry]) -> Iterable[tuple[_Entry, _Row]]:
    entries: dict[TopicRef, _Entry] = {}
    for row in rows:
        if row.topic not in entries:
            entries[row.topic] = add(name=row.topic.name, topic_id=row.topic.topic_id)
        yield entries[row.topic], row


def read_list(message: pb.ListPartitionReassignmentsRequest) -> messages.ListPartitionReassignments:
    """A request for the reassignments that have not ended."""
    return messages.ListPartitionReassignments(
        cluster_id=message.cluster_id if message.HasField("cluster_id") else None,
        partitions=tuple(
            messages.PartitionsRef(TopicRef(topic.topic, topic.topic_id), tuple(topic.partitions))
            for topic in message.topics
        ),
    )


def write_listed(answer: messages.ReassignmentsListed) -> pb.ListPartitionReassignmentsResponse:
    """The reassignments that have not ended, by topic."""
    message = pb.ListPartitionReassignmentsResponse(moves_per_node=answer.moves_per_node)
    write_error(message, answer.refusal)
    for entry, one in _by_topic(answer.reassignments, message.topics.add):
        partition = one.partition
        row = entry.partitions.add(
            partition_index=partition.tp.partition,
            replicas=partition.replicas,
            adding_replicas=partition.adding,
            removing_replicas=partition.removing,
            state=_STATE[messages.state_of(partition)],
            target_replicas=partition.target if partition.original else partition.queued_target,
            since_ms=one.since_ms,
            throttle_bytes_per_s=partition.throttle_bytes_per_s,
        )
        for wait in one.waits:
            row.waiting_for.add(node_id=wait.node_id, why=wait.why)
    return message
