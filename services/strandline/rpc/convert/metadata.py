"""The cluster's state on the wire: nodes, partitions, topics, rules, snapshots and changes.

Invariant: both directions are exact inverses for everything that a receiver may act on; absence stays absence, so that
a partition without a leader is never read as one led by node 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from strandline.core import messages
from strandline.core.coordinator.internal_topics import is_internal
from strandline.core.types import (
    Durability,
    FetchHw,
    IsrJoin,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    Role,
    Rules,
    TopicPartition,
    Truncation,
)
from strandline.rpc.convert.access import read_acl, read_quotas, write_quotas, write_rules_message
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.errors import invalid
from strandline.v1 import controller_service_pb2, metadata_pb2, partition_pb2

_V = TypeVar("_V")

CONTROLLER_ID = 0
"""There is one active controller; its id is fixed and says nothing that `controller_epoch` does not."""

_TRUNCATION = {
    Truncation.LEADER_EPOCH: metadata_pb2.TRUNCATION_LEADER_EPOCH,
    Truncation.FETCH: metadata_pb2.TRUNCATION_FETCH,
    Truncation.KIP_279: metadata_pb2.TRUNCATION_KIP_279,
    Truncation.KIP_101: metadata_pb2.TRUNCATION_KIP_101,
    Truncation.HIGH_WATERMARK: metadata_pb2.TRUNCATION_HIGH_WATERMARK,
}
_FETCH_HW = {FetchHw.SNAPSHOT: metadata_pb2.FETCH_HW_SNAPSHOT, FetchHw.UPDATED: metadata_pb2.FETCH_HW_UPDATED}
_ISR_JOIN = {IsrJoin.CAUGHT_UP: metadata_pb2.ISR_JOIN_CAUGHT_UP, IsrJoin.HW: metadata_pb2.ISR_JOIN_HW}
_DURABILITY = {
    Durability.FSYNC: metadata_pb2.DURABILITY_FSYNC,
    Durability.PAGE_CACHE: metadata_pb2.DURABILITY_PAGE_CACHE,
}
_ROLE = {Role.LEADER: metadata_pb2.NODE_ROLE_LEADER, Role.FOLLOWER: metadata_pb2.NODE_ROLE_FOLLOWER}
_TRUNCATION_BACK: dict[int, Truncation] = {int(number): value for value, number in _TRUNCATION.items()}
_FETCH_HW_BACK: dict[int, FetchHw] = {int(number): value for value, number in _FETCH_HW.items()}
_ISR_JOIN_BACK: dict[int, IsrJoin] = {int(number): value for value, number in _ISR_JOIN.items()}
_DURABILITY_BACK: dict[int, Durability] = {int(number): value for value, number in _DURABILITY.items()}
_ROLE_BACK: dict[int, Role] = {int(number): value for value, number in _ROLE.items()}

_REIGN = ByName(messages.Reign, metadata_pb2.Reign)
PLACE = ByName(messages.Position, metadata_pb2.Position)
"""A position as its sender claims it."""
POSITION = ByName(messages.PositionProof, controller_service_pb2.PositionProof)
"""A proof of a position that a node returns to the controller; not verified here."""


def write_rules(rules: Rules) -> metadata_pb2.Rules:
    """The four settings as numbers."""
    return metadata_pb2.Rules(
        truncation=_TRUNCATION[rules.truncation],
        fetch_hw=_FETCH_HW[rules.fetch_hw],
        isr_join=_ISR_JOIN[rules.isr_join],
        durability=_DURABILITY[rules.durability],
    )


def read_rules(message: metadata_pb2.Rules, default: Rules) -> Rules:
    """The four settings; one that is not given has the value in ``default``.

    Raises:
        Refused: INVALID_REQUEST for a number that this release does not know.
    """
    return Rules(
        truncation=_pick(_TRUNCATION_BACK, message.truncation, default.truncation, "truncation"),
        fetch_hw=_pick(_FETCH_HW_BACK, message.fetch_hw, default.fetch_hw, "fetch_hw"),
        isr_join=_pick(_ISR_JOIN_BACK, message.isr_join, default.isr_join, "isr_join"),
        durability=_pick(_DURABILITY_BACK, message.durability, default.durability, "durability"),
    )


def _pick(known: Mapping[int, _V], number: int, default: _V, name: str) -> _V:
    if number == 0:
        return default
    if number not in known:
        raise invalid(f"rules.{name} has the unknown value {number}; run the release of the controller")
    return known[number]


def write_roles(roles: Iterable[Role]) -> list[metadata_pb2.NodeRole.ValueType]:
    """Roles as numbers, in a fixed order."""
    return sorted(_ROLE[role] for role in roles)


def read_roles(numbers: Iterable[int]) -> frozenset[Role]:
    """Roles, without the numbers that this release does not know."""
    return frozenset(_ROLE_BACK[number] for number in numbers if number in _ROLE_BACK)


_NODE = ByName(
    messages.NodeImage,
    metadata_pb2.NodeMetadata,
    roles=As("roles", write_roles, read_roles),
    client_endpoint=None,
    internal_endpoint=None,
)


def write_endpoints(client: messages.Endpoint | None, internal: messages.Endpoint | None) -> metadata_pb2.NodeEndpoints:
    """A node's addresses."""
    message = metadata_pb2.NodeEndpoints()
    if client is not None:
        message.client.host, message.client.port = client
    if internal is not None:
        message.internal.host, message.internal.port = internal
    return message


def read_endpoint(message: partition_pb2.Endpoint) -> messages.Endpoint:
    """One advertised address."""
    return messages.Endpoint(message.host, message.port)


def write_node(node: messages.NodeImage) -> metadata_pb2.NodeMetadata:
    """One node with all its fields."""
    return _NODE.write(node, endpoints=write_endpoints(node.client_endpoint, node.internal_endpoint))


def read_node(message: metadata_pb2.NodeMetadata) -> messages.NodeImage:
    """One node with all its fields."""
    endpoints = message.endpoints
    return _NODE.read(
        message,
        client_endpoint=read_endpoint(endpoints.client) if endpoints.HasField("client") else None,
        internal_endpoint=read_endpoint(endpoints.internal) if endpoints.HasField("internal") else None,
    )


def write_partition(partition: messages.PartitionImage) -> metadata_pb2.PartitionMetadata:
    """One partition's state."""
    return metadata_pb2.PartitionMetadata(
        partition_index=partition.tp.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        elr=partition.elr,
        observers=partition.observers,
        leader_recovery_state=write_recovery(partition.recovering),
        min_insync_replicas=partition.min_isr,
        last_unclean_leader_epoch=partition.last_unclean_leader_epoch,
        unproven=partition.unproven,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
        original_replicas=partition.original,
        queued_target=partition.queued_target,
        throttle_bytes_per_s=partition.throttle_bytes_per_s,
    )


def read_partition(topic_id: str, message: metadata_pb2.PartitionMetadata) -> messages.PartitionImage:
    """One partition's state."""
    unclean = message.last_unclean_leader_epoch if message.HasField("last_unclean_leader_epoch") else None
    return messages.PartitionImage(
        tp=TopicPartition(topic_id, message.partition_index),
        replicas=_nodes(message.replicas),
        isr=_nodes(message.isr),
        elr=_nodes(message.elr),
        leader=NodeId(message.leader_id) if message.HasField("leader_id") else None,
        leader_epoch=LeaderEpoch(message.leader_epoch),
        partition_epoch=PartitionEpoch(message.partition_epoch),
        min_isr=message.min_insync_replicas,
        recovering=read_recovery(message.leader_recovery_state),
        last_unclean_leader_epoch=None if unclean is None else LeaderEpoch(unclean),
        observers=_nodes(message.observers),
        unproven=_nodes(message.unproven),
        adding=_nodes(message.adding_replicas),
        removing=_nodes(message.removing_replicas),
        original=_nodes(message.original_replicas),
        queued_target=_nodes(message.queued_target),
        throttle_bytes_per_s=message.throttle_bytes_per_s or None,
    )


def write_recovery(recovering: bool) -> partition_pb2.LeaderRecoveryState.ValueType:
    """Kafka's LeaderRecoveryState."""
    if recovering:
        return partition_pb2.LEADER_RECOVERY_STATE_RECOVERING
    return partition_pb2.LEADER_RECOVERY_STATE_UNSPECIFIED


def read_recovery(number: int) -> bool:
    """Whether the leader was elected unclean and has not yet recovered."""
    return number == partition_pb2.LEADER_RECOVERY_STATE_RECOVERING


def _nodes(ids: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(node_id) for node_id in ids)


def write_topic(topic: messages.TopicImage) -> metadata_pb2.TopicMetadata:
    """One topic with all its partitions."""
    return metadata_pb2.TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id,
        configs=dict(topic.configs),
        partitions=[write_partition(partition) for partition in topic.partitions],
        internal=is_internal(topic.name),
    )


def read_topic(message: metadata_pb2.TopicMetadata) -> messages.TopicImage:
    """One topic with all its partitions, in the order of their indexes."""
    return messages.TopicImage(
        name=message.name,
        topic_id=message.topic_id,
        configs=tuple(sorted(message.configs.items())),
        partitions=tuple(read_partition(message.topic_id, partition) for partition in message.partitions),
    )


def write_image(image: messages.MetadataImage) -> metadata_pb2.ClusterMetadata:
    """A snapshot or a change; the enclosing message says which, and to which node it is addressed."""
    message = metadata_pb2.ClusterMetadata(
        cluster_id=image.cluster_id,
        controller_id=CONTROLLER_ID,
        controller_epoch=image.controller_epoch,
        metadata_offset=image.metadata_offset,
        rules=write_rules(image.rules),
        feature_level=image.feature_level,
        nodes=[write_node(node) for node in image.nodes],
        topics=[write_topic(topic) for topic in image.topics],
    )
    for topic_id in image.deleted_topic_ids:
        message.topics.add(topic_id=topic_id, deleted=True)
    message.removed_node_ids.extend(image.removed_node_ids)
    message.reigns.extend(_REIGN.write_all(image.reigns))
    if image.acls is not None:
        message.acls.CopyFrom(write_rules_message(image.acls))
    if image.quotas is not None:
        message.quotas.CopyFrom(metadata_pb2.ClientQuotas(entries=write_quotas(image.quotas)))
    return message


def read_image(
    message: metadata_pb2.ClusterMetadata, *, is_snapshot: bool, to_node_epoch: NodeEpoch | None = None
) -> messages.MetadataImage:
    """The state that its receiver acts on.

    Raises:
        Refused: INVALID_REQUEST when the rules have a value of a later release.
    """
    return messages.MetadataImage(
        cluster_id=message.cluster_id,
        controller_epoch=message.controller_epoch,
        metadata_offset=message.metadata_offset,
        is_snapshot=is_snapshot,
        rules=read_rules(message.rules, Rules()),
        feature_level=message.feature_level,
        nodes=tuple(read_node(node) for node in message.nodes),
        topics=tuple(read_topic(topic) for topic in message.topics if not topic.deleted),
        deleted_topic_ids=tuple(topic.topic_id for topic in message.topics if topic.deleted),
        removed_node_ids=_nodes(message.removed_node_ids),
        to_node_epoch=to_node_epoch,
        reigns=_REIGN.read_all(message.reigns),
        acls=tuple(map(read_acl, message.acls.acls)) if message.HasField("acls") else None,
        quotas=read_quotas(message.quotas.entries) if message.HasField("quotas") else None,
    )


def write_watch_answer(
    image: messages.MetadataImage | None, to_node_epoch: NodeEpoch | None
) -> controller_service_pb2.WatchMetadataResponse:
    """One message of the watch; without an image it is a sign of life."""
    if image is None:
        return write_watch_news(None, is_snapshot=False, to_node_epoch=to_node_epoch, position=None)
    return write_watch_news(
        write_image(image), is_snapshot=image.is_snapshot, to_node_epoch=to_node_epoch, position=image.position
    )


def write_watch_news(
    metadata: metadata_pb2.ClusterMetadata | None,
    *,
    is_snapshot: bool,
    to_node_epoch: NodeEpoch | None,
    position: messages.PositionProof | None,
) -> controller_service_pb2.WatchMetadataResponse:
    """One message of the watch, around metadata that was encoded once for all watchers."""
    message = controller_service_pb2.WatchMetadataResponse(node_epoch=to_node_epoch, metadata=metadata)
    if is_snapshot:
        message.is_snapshot = True
    if position is not None:
        message.position_mac = position.mac
    return message


def read_watch_answer(message: controller_service_pb2.WatchMetadataResponse) -> messages.MetadataImage | None:
    """The image in one message of the watch, with the node epoch it is addressed to; None for a sign of life."""
    if not message.HasField("metadata"):
        return None
    epoch = NodeEpoch(message.node_epoch) if message.HasField("node_epoch") else None
    image = read_image(message.metadata, is_snapshot=message.is_snapshot, to_node_epoch=epoch)
    if epoch is None or not message.HasField("position_mac"):
        return image
    reign_id = image.reign.reign_id if image.reign else ""
    position = messages.PositionProof(
        epoch, image.controller_epoch, image.metadata_offset, message.position_mac, reign_id
    )
    return replace(image, position=position)
