"""The controller's administration on the wire: topics, elections, producer ids, nodes.

Invariant: every element of a request gets its own entry in the answer; a count that is not given is None and
never 0, so that the controller's default applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.core.control import messages as control_messages
from strandline.core.types import NodeId
from strandline.rpc.convert.by_name import ByName
from strandline.rpc.convert.controller import read_epochs_seen, required_epoch
from strandline.rpc.convert.errors import by_topic, write_error
from strandline.rpc.convert.metadata import CONTROLLER_ID, POSITION, write_image, write_node, write_topic
from strandline.v1 import controller_service_pb2 as pb, partition_pb2

_HasCluster = (
    pb.CreateTopicsRequest
    | pb.DeleteTopicsRequest
    | pb.DescribeTopicsRequest
    | pb.AlterTopicConfigsRequest
    | pb.CreatePartitionsRequest
    | pb.ElectLeadersRequest
    | pb.GetMetadataRequest
)


# Pairs that differ in nothing but names.
INIT_PRODUCER_ID = ByName(control_messages.InitProducerId, pb.InitProducerIdRequest)
PRODUCER_ID = ByName(control_messages.ProducerIdGiven, pb.InitProducerIdResponse)
_ALLOCATE = ByName(control_messages.AllocateProducerIds, pb.AllocateProducerIdsRequest)
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
_WATCH = ByName(control_messages.WatchMetadata, pb.WatchMetadataRequest, position=POSITION)


def _cluster(message: _HasCluster) -> str | None:
    return message.cluster_id if message.HasField("cluster_id") else None


def _ref(message: partition_pb2.TopicReference | pb.TopicConfigChange | pb.GrowingTopic) -> control_messages.TopicRef:
    return control_messages.TopicRef(message.name, message.topic_id)


def _assignments(given: Iterable[pb.ReplicaAssignment]) -> tuple[tuple[int, tuple[NodeId, ...]], ...]:
    return tuple((one.partition_index, tuple(NodeId(node_id) for node_id in one.node_ids)) for one in given)


def _configs(given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(given))


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
            name=created.name,
            num_partitions=created.num_partitions,
            replication_factor=created.replication_factor,
        )
        write_error(entry, created.refusal)
        if created.topic is not None:
            entry.topic_id = created.topic.topic_id
            entry.configs.update(created.topic.configs)
    return message


def read_delete_topics(message: pb.DeleteTopicsRequest) -> control_messages.DeleteTopics:
    """Topics to delete."""
    return control_messages.DeleteTopics(
        cluster_id=_cluster(message), topics=tuple(_ref(topic) for topic in message.topics)
    )


def read_describe_topics(message: pb.DescribeTopicsRequest) -> control_messages.DescribeTopics:
    """Topics to describe."""
    return control_messages.DescribeTopics(
        cluster_id=_cluster(message), topics=tuple(_ref(topic) for topic in message.topics)
    )


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


def read_alter_configs(message: pb.AlterTopicConfigsRequest) -> control_messages.AlterTopicConfigs:
    """Settings to change."""
    changes = (
        control_messages.ConfigChange(_ref(topic), _configs(topic.set_configs.items()), tuple(topic.delete_configs))
        for topic in message.topics
    )
    return control_messages.AlterTopicConfigs(
        cluster_id=_cluster(message), topics=tuple(changes), validate_only=message.validate_only
    )


def read_create_partitions(message: pb.CreatePartitionsRequest) -> control_messages.CreatePartitions:
    """Topics that get more partitions."""
    growing = (
        control_messages.GrowingTopic(_ref(topic), topic.count, _assignments(topic.assignments))
        for topic in message.topics
    )
    return control_messages.CreatePartitions(
        cluster_id=_cluster(message),
        topics=tuple(growing),
        validate_only=message.validate_only,
        request_id=message.request_id if message.HasField("request_id") else None,
    )


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
        partitions=tuple(
            control_messages.PartitionsRef(
                control_messages.TopicRef(topic.topic, topic.topic_id), tuple(topic.partitions)
            )
            for topic in message.topic_partitions
        ),
        seen=tuple(map(read_epochs_seen, message.epochs_seen)),
    )


def write_leaders_elected(answer: control_messages.LeadersElected) -> pb.ElectLeadersResponse:
    """The results of the elections, by topic."""
    message = pb.ElectLeadersResponse()
    entries: dict[control_messages.TopicRef, pb.ElectionTopicResult] = {}
    for result in answer.results:
        if result.topic not in entries:
            name, topic_id = result.topic
            entries[result.topic] = message.replica_election_results.add(topic=name, topic_id=topic_id)
        entry = entries[result.topic].partition_result.add(
            partition_index=result.partition, leader_id=result.leader, leader_epoch=result.leader_epoch
        )
        write_error(entry, result.refusal)
    return message


def write_allocate_producer_ids(request: control_messages.AllocateProducerIds) -> pb.AllocateProducerIdsRequest:
    """A node's request for producer ids."""
    return _ALLOCATE.write(request)


def read_allocate_producer_ids(message: pb.AllocateProducerIdsRequest) -> control_messages.AllocateProducerIds:
    """A node's request for producer ids.

    Raises:
        Refused: STALE_BROKER_EPOCH without a node epoch.
    """
    return _ALLOCATE.read(message, node_epoch=required_epoch(message))


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


def read_get_metadata(message: pb.GetMetadataRequest) -> control_messages.GetMetadata:
    """A client's request for the state."""
    topics = tuple(_ref(topic) for topic in message.topics)
    return control_messages.GetMetadata(cluster_id=_cluster(message), topics=topics, linearizable=message.linearizable)


def write_metadata(answer: control_messages.MetadataListed) -> pb.GetMetadataResponse:
    """The whole state."""
    return pb.GetMetadataResponse(metadata=write_image(answer.image))


def read_watch(message: pb.WatchMetadataRequest) -> control_messages.WatchMetadata:
    """A subscription."""
    return _WATCH.read(message)
