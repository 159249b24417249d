"""The controller's administration on the wire: topics, elections, producer ids, nodes, reassignments.

Invariant: every element of a request gets its own entry in the answer; a count that is not given is None and
never 0, so that the controller's default applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from strandline.core.control import messages as control_messages
from strandline.core.control.messages import ReassignmentState, TopicRef
from strandline.core.types import NodeId
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.controller import read_epochs_seen, required_epoch
from strandline.rpc.convert.errors import by_topic, write_error
from strandline.rpc.convert.metadata import CONTROLLER_ID, POSITION, write_node, write_topic
from strandline.v1 import controller_service_pb2 as pb, partition_pb2

_HasCluster = pb.CreateTopicsRequest | pb.ElectLeadersRequest | pb.AlterPartitionReassignmentsRequest

# Pairs that differ in nothing but names.
INIT_PRODUCER_ID = ByName(control_messages.InitProducerId, pb.InitProducerIdRequest)
PRODUCER_ID = ByName(control_messages.ProducerIdGiven, pb.InitProducerIdResponse)
ALLOCATE_PRODUCER_IDS = ByName(control_messages.AllocateProducerIds, pb.AllocateProducerIdsRequest)
PRODUCER_IDS = ByName(
    control_messages.ProducerIdsAllocated,
    pb.AllocateProducerIdsResponse,
    start="producer_id_start",
    length="producer_id_len",
)
LIST_NODES = ByName(control_messages.ListNodes, pb.ListNodesRequest)
SHUTDOWN_NODE = ByName(control_messages.ShutdownNode, pb.ShutdownNodeRequest)
UNREGISTER_NODE = ByName(control_messages.UnregisterNode, pb.UnregisterNodeRequest)
UNREGISTERED = ByName(control_messages.NodeUnregistered, pb.UnregisterNodeResponse)
WATCH_METADATA = ByName(control_messages.WatchMetadata, pb.WatchMetadataRequest, position=POSITION)


def _cluster(message: _HasCluster) -> str | None:
    return message.cluster_id if message.HasField("cluster_id") else None


def _ref(message: partition_pb2.TopicReference | pb.TopicConfigChange | pb.GrowingTopic) -> TopicRef:
    return TopicRef(message.name, message.topic_id)


def _assignments(given: Iterable[pb.ReplicaAssignment]) -> tuple[tuple[int, tuple[NodeId, ...]], ...]:
    return tuple((one.partition_index, _nodes(one)) for one in given)


def _nodes(message: pb.ReplicaAssignment | pb.ReplicaList) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, message.node_ids))


def _partitions(topics: Iterable[partition_pb2.TopicPartitions]) -> tuple[control_messages.PartitionsRef, ...]:
    return tuple(
        control_messages.PartitionsRef(TopicRef(topic.topic, topic.topic_id), tuple(topic.partitions))
        for topic in topics
    )


class _OfTopic(Protocol):
    @property
    def topic(self) -> TopicRef: ...


_Row = TypeVar("_Row", bound=_OfTopic)
_Entry = TypeVar("_Entry", pb.ElectionTopicResult, pb.ReassignedTopic, pb.OngoingTopicReassignment)


def _by_topic(rows: Iterable[_Row], add: Callable[[str, str], _Entry]) -> Iterable[tuple[_Entry, _Row]]:
    """Each row with the entry of its topic, which ``add`` makes of name and id."""
    entries: dict[TopicRef, _Entry] = {}
    for row in rows:
        if row.topic not in entries:
            entries[row.topic] = add(*row.topic)
        yield entries[row.topic], row


def _configs(given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(given))


def _refs(given: Iterable[partition_pb2.TopicReference]) -> tuple[TopicRef, ...]:
    return tuple(map(_ref, given))


def _changes(given: Iterable[pb.TopicConfigChange]) -> tuple[control_messages.ConfigChange, ...]:
    return tuple(
        control_messages.ConfigChange(_ref(one), _configs(one.set_configs.items()), tuple(one.delete_configs))
        for one in given
    )


def _growing(given: Iterable[pb.GrowingTopic]) -> tuple[control_messages.GrowingTopic, ...]:
    return tuple(control_messages.GrowingTopic(_ref(one), one.count, _assignments(one.assignments)) for one in given)


DELETE_TOPICS = ByName(control_messages.DeleteTopics, pb.DeleteTopicsRequest, topics=As("topics", read=_refs))
DESCRIBE_TOPICS = ByName(control_messages.DescribeTopics, pb.DescribeTopicsRequest, topics=As("topics", read=_refs))
GET_METADATA = ByName(control_messages.GetMetadata, pb.GetMetadataRequest, topics=As("topics", read=_refs))
ALTER_CONFIGS = ByName(
    control_messages.AlterTopicConfigs, pb.AlterTopicConfigsRequest, topics=As("topics", read=_changes)
)
CREATE_PARTITIONS = ByName(
    control_messages.CreatePartitions, pb.CreatePartitionsRequest, topics=As("topics", read=_growing)
)
LIST_REASSIGNMENTS = ByName(
    control_messages.ListPartitionReassignments,
    pb.ListPartitionReassignmentsRequest,
    partitions=As("topics", read=_partitions),
)


def read_create_topics(message: pb.CreateTopicsRequest, draw_id: Callable[[], str]) -> control_messages.CreateTopics:
    """Topics to create, each with a fresh id."""
    return control_messages.CreateTopics(
        cluster_id=_cluster(message),
        topics=tuple(_read_new(topic, draw_id()) for topic in message.topics),
        validate_only=message.validate_only,
        request_id=message.request_id if message.HasField("request_id") else None,
    )


def _read_new(message: pb.CreatableTopic, topic_id: str) -> control_messages.NewTopic:
    return control_messages.NewTopic(
        name=message.name,
        topic_id=topic_id,
        num_partitions=message.num_partitions if message.HasField("num_partitions") else None,
        replication_factor=message.replication_factor if message.HasField("replication_factor") else None,
        assignments=_assignments(message.assignments),
        configs=_configs(message.configs.items()),
    )


def write_topics_created(answer: control_messages.TopicsCreated) -> pb.CreateTopicsResponse:
    """The result for each topic to create."""
    message = pb.CreateTopicsResponse()
    for created in answer.topics:
        entry = message.topics.add(
            name=created.name, num_partitions=created.num_partitions, replication_factor=created.replication_factor
        )
        write_error(entry, created.refusal)
        if created.topic is not None:
            entry.topic_id = created.topic.topic_id
            entry.configs.update(created.topic.configs)
    return message


def write_topics_described(answer: control_messages.TopicsDescribed) -> pb.DescribeTopicsResponse:
    """The topics described; an unknown one has only the name and id from the request."""
    message = pb.DescribeTopicsResponse()
    for described in answer.topics:
        entry = message.topics.add()
        write_error(entry, described.refusal)
        if described.topic is not None:
            entry.topic.CopyFrom(write_topic(described.topic))
        else:
            entry.topic.name, entry.topic.topic_id = described.asked
    return message


def write_topics_deleted(answer: control_messages.TopicsChanged) -> pb.DeleteTopicsResponse:
    """The result for each topic to delete."""
    return pb.DeleteTopicsResponse(responses=_results(answer.topics))


def write_configs_altered(answer: control_messages.TopicsChanged) -> pb.AlterTopicConfigsResponse:
    """The result for each topic whose settings were to change."""
    return pb.AlterTopicConfigsResponse(responses=_results(answer.topics))


def write_partitions_created(answer: control_messages.TopicsChanged) -> pb.CreatePartitionsResponse:
    """The result for each topic that was to get more partitions."""
    return pb.CreatePartitionsResponse(results=_results(answer.topics))


def _results(results: Iterable[control_messages.TopicResult]) -> list[pb.TopicResult]:
    messages = []
    for (name, topic_id), refusal in results:
        message = pb.TopicResult(name=name, topic_id=topic_id)
        write_error(message, refusal)
        messages.append(message)
    return messages


def read_elect_leaders(message: pb.ElectLeadersRequest) -> control_messages.ElectLeaders:
    """Elections to hold."""
    is_unclean = message.election_type == pb.ELECTION_TYPE_UNCLEAN
    return control_messages.ElectLeaders(
        cluster_id=_cluster(message),
        kind=control_messages.ElectionKind.UNCLEAN if is_unclean else control_messages.ElectionKind.PREFERRED,
        partitions=_partitions(message.topic_partitions),
        seen=tuple(map(read_epochs_seen, message.epochs_seen)),
    )


def write_leaders_elected(answer: control_messages.LeadersElected) -> pb.ElectLeadersResponse:
    """The results of the elections, by topic."""
    message = pb.ElectLeadersResponse()
    add = message.replica_election_results.add
    for entry, result in _by_topic(answer.results, lambda name, topic_id: add(topic=name, topic_id=topic_id)):
        row = entry.partition_result.add(
            partition_index=result.partition, leader_id=result.leader, leader_epoch=result.leader_epoch
        )
        write_error(row, result.refusal)
    return message


def read_allocate_producer_ids(message: pb.AllocateProducerIdsRequest) -> control_messages.AllocateProducerIds:
    """A node's request for producer ids.

    Raises:
        Refused: STALE_BROKER_EPOCH without a node epoch.
    """
    return ALLOCATE_PRODUCER_IDS.read(message, node_epoch=required_epoch(message))


def write_nodes_listed(answer: control_messages.NodesListed) -> pb.ListNodesResponse:
    """The registered nodes and their sessions."""
    message = pb.ListNodesResponse(
        cluster_id=answer.cluster_id, controller_id=CONTROLLER_ID, controller_epoch=answer.controller_epoch
    )
    for listed in answer.nodes:
        entry = message.nodes.add(
            node=write_node(listed.node),
            directory_id=listed.directory_id,
            last_heartbeat_age_ms=listed.last_heartbeat_age_ms,
            current_metadata_offset=listed.metadata_offset,
        )
        entry.feature_levels.min_level = listed.feature_min
        entry.feature_levels.max_level = listed.feature_max
    return message


def write_shutdown_begun(answer: control_messages.NodeShutdownBegun) -> pb.ShutdownNodeResponse:
    """The progress of a shutdown: the partitions that still have to move."""
    message = pb.ShutdownNodeResponse()
    write_error(message, answer.refusal)
    for topic_id, partitions in by_topic(answer.remaining, lambda tp: tp):
        message.remaining_partitions.add(topic_id=topic_id, partitions=[tp.partition for tp in partitions])
    return message


# ---- reassignments
# Reassignments and drained nodes on the wire, as the controller reads and answers them.
#
# Invariant: an absent target is a cancellation, and an empty one is an invalid target; neither is read as the other.

_STATE = {
    None: pb.REASSIGNMENT_STATE_UNSPECIFIED,
    ReassignmentState.QUEUED: pb.REASSIGNMENT_STATE_QUEUED,
    ReassignmentState.RUNNING: pb.REASSIGNMENT_STATE_RUNNING,
}
DRAIN = ByName(control_messages.DrainNode, pb.DrainNodeRequest)
DRAINED = ByName(control_messages.NodeDrained, pb.DrainNodeResponse)


def read_reassign(message: pb.AlterPartitionReassignmentsRequest) -> control_messages.AlterPartitionReassignments:
    """Reassignments to begin, to change or to cancel."""
    wanted = (
        control_messages.ReassignPartition(
            TopicRef(topic.name, topic.topic_id),
            row.partition_index,
            _nodes(row.target) if row.HasField("target") else None,
            _nodes(row.planned_from) if row.HasField("planned_from") else None,
        )
        for topic in message.topics
        for row in topic.partitions
    )
    allows = message.allow_replication_factor_change
    return control_messages.AlterPartitionReassignments(
        cluster_id=_cluster(message),
        partitions=tuple(wanted),
        allow_factor_change=allows if message.HasField("allow_replication_factor_change") else True,
        throttle_bytes_per_s=message.throttle_bytes_per_s or None,
        validate_only=message.validate_only,
        force=message.force,
    )


def write_reassigned(answer: control_messages.PartitionsReassigned) -> pb.AlterPartitionReassignmentsResponse:
    """The results of the requested reassignments, by topic."""
    message = pb.AlterPartitionReassignmentsResponse()
    write_error(message, answer.refusal)
    add = message.responses.add
    for entry, result in _by_topic(answer.results, lambda name, topic_id: add(name=name, topic_id=topic_id)):
        row = entry.partitions.add(partition_index=result.partition, state=_STATE[result.state])
        write_error(row, result.refusal)
    return message


def write_reassignments(answer: control_messages.ReassignmentsListed) -> pb.ListPartitionReassignmentsResponse:
    """The reassignments that have not ended, by topic."""
    message = pb.ListPartitionReassignmentsResponse(moves_per_node=answer.moves_per_node)
    write_error(message, answer.refusal)
    add = message.topics.add
    for entry, one in _by_topic(answer.reassignments, lambda name, topic_id: add(name=name, topic_id=topic_id)):
        partition = one.partition
        row = entry.partitions.add(
            partition_index=partition.tp.partition,
            replicas=partition.replicas,
            adding_replicas=partition.adding,
            removing_replicas=partition.removing,
            state=_STATE[control_messages.state_of(partition)],
            target_replicas=partition.target if partition.original else partition.queued_target,
            since_ms=one.since_ms,
            throttle_bytes_per_s=partition.throttle_bytes_per_s,
        )
        for wait in one.waits:
            row.waiting_for.add(node_id=wait.node_id, why=wait.why)
    return message
