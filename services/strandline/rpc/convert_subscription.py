"""Subscriptions to the metadata on the wire, both ways.

Invariant: both directions are exact inverses for everything a subscriber may act on; what a message leaves out stays
None, so that a setting that stayed never reads as its default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strandline.core.messages import AsOf, Endpoint, MetadataImage, NodeImage, PartitionImage, TopicImage, Wanted
from strandline.core.types import NodeId, Rules
from strandline.rpc.convert_metadata import (
    CONTROLLER_ID,
    read_endpoint,
    read_image,
    read_node,
    read_partition,
    read_rules,
    read_topic,
    write_endpoints,
)
from strandline.v1 import metadata_service_pb2 as pb
from strandline.v1 import partition_pb2


@dataclass(frozen=True, slots=True)
class KnownController:
    """One controller, by the ports at which it is known to be reached."""

    controller_id: int
    client: Endpoint | None = None
    internal: Endpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataUpdate:
    """One message of a subscription as its subscriber reads it; None and empty: as before."""

    as_of: AsOf
    is_snapshot: bool = False
    cluster_id: str = ""
    rules: Rules | None = None
    feature_level: int | None = None
    topics: tuple[TopicImage, ...] = ()
    changed: tuple[tuple[str, tuple[PartitionImage, ...]], ...] = ()
    """Partitions by topic id."""
    deleted_topic_ids: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    """Names and ids."""
    nodes: tuple[NodeImage, ...] = ()
    removed_node_ids: tuple[NodeId, ...] = ()
    controllers: tuple[KnownController, ...] = ()

    @property
    def is_sign_of_life(self) -> bool:
        """Whether it says only how current the sender is."""
        news = (self.is_snapshot, self.rules, self.feature_level, self.topics, self.changed, self.deleted_topic_ids)
        return not any((*news, self.missing, self.nodes, self.removed_node_ids))


def write_as_of(as_of: AsOf) -> pb.AsOf:
    """A position with its age and sender."""
    message = pb.AsOf(
        controller_epoch=as_of.controller_epoch,
        reign_id=as_of.reign_id,
        metadata_offset=as_of.metadata_offset,
        age_ms=as_of.age_ms,
    )
    if as_of.node_id is None:
        message.controller_id = CONTROLLER_ID
    else:
        message.node_id = as_of.node_id
    return message


def read_as_of(message: pb.AsOf) -> AsOf:
    """A position with its age and sender."""
    return AsOf(
        controller_epoch=message.controller_epoch,
        metadata_offset=message.metadata_offset,
        reign_id=message.reign_id,
        age_ms=message.age_ms,
        node_id=NodeId(message.node_id) if message.HasField("node_id") else None,
    )


def write_wanted(wanted: Wanted, cluster_id: str | None) -> pb.SubscribeRequest:
    """One message of a subscriber."""
    return pb.SubscribeRequest(
        cluster_id=cluster_id,
        add_topics=_write_refs(wanted.add),
        remove_topics=_write_refs(wanted.remove),
        all_topics=wanted.all_topics,
        since=None if wanted.since is None else write_as_of(wanted.since),
    )


def read_wanted(message: pb.SubscribeRequest) -> Wanted:
    """One message of a subscriber."""
    return Wanted(
        add=_read_refs(message.add_topics),
        remove=_read_refs(message.remove_topics),
        all_topics=message.all_topics,
        since=read_as_of(message.since) if message.HasField("since") else None,
    )


def _write_refs(refs: Iterable[tuple[str, str]]) -> list[partition_pb2.TopicReference]:
    return [partition_pb2.TopicReference(name=name, topic_id=topic_id) for name, topic_id in refs]


def _read_refs(messages: Iterable[partition_pb2.TopicReference]) -> tuple[tuple[str, str], ...]:
    return tuple((message.name, message.topic_id) for message in messages)


def write_controllers(known: Iterable[KnownController]) -> list[pb.ControllerEndpoints]:
    """Where controllers are reached."""
    return [
        pb.ControllerEndpoints(controller_id=one.controller_id, endpoints=write_endpoints(one.client, one.internal))
        for one in known
    ]


def read_controllers(messages: Iterable[pb.ControllerEndpoints]) -> tuple[KnownController, ...]:
    """Where controllers are reached."""
    return tuple(_read_controller(message) for message in messages)


def _read_controller(message: pb.ControllerEndpoints) -> KnownController:
    ends = message.endpoints
    return KnownController(
        message.controller_id,
        read_endpoint(ends.client) if ends.HasField("client") else None,
        read_endpoint(ends.internal) if ends.HasField("internal") else None,
    )


def read_update(message: pb.SubscribeResponse) -> MetadataUpdate:
    """One message of a subscription.

    Raises:
        Refused: INVALID_REQUEST when the rules have a value of a later release.
    """
    return MetadataUpdate(
        as_of=read_as_of(message.as_of),
        is_snapshot=message.is_snapshot,
        cluster_id=message.cluster_id,
        rules=read_rules(message.rules, Rules()) if message.HasField("rules") else None,
        feature_level=message.feature_level or None,
        topics=tuple(read_topic(topic) for topic in message.topics),
        changed=tuple(
            (topic.topic_id, tuple(read_partition(topic.topic_id, partition) for partition in topic.partitions))
            for topic in message.changed_topics
        ),
        deleted_topic_ids=tuple(message.deleted_topic_ids),
        missing=_read_refs(message.missing_topics),
        nodes=tuple(read_node(node) for node in message.nodes),
        removed_node_ids=tuple(NodeId(node_id) for node_id in message.removed_node_ids),
        controllers=read_controllers(message.controllers),
    )


def read_current_metadata(message: pb.MetadataServiceGetMetadataResponse) -> tuple[AsOf, MetadataImage]:
    """The state that a process knows, and how current it is.

    Raises:
        Refused: INVALID_REQUEST when the rules have a value of a later release.
    """
    return read_as_of(message.as_of), read_image(message.metadata, is_snapshot=True)


def update_of_image(image: MetadataImage) -> MetadataUpdate:
    """What a watch of an earlier release brought, or a whole state, as an update; topics are whole in both."""
    return MetadataUpdate(
        as_of=AsOf(image.controller_epoch, image.metadata_offset),
        is_snapshot=image.is_snapshot,
        cluster_id=image.cluster_id,
        rules=image.rules,
        feature_level=image.feature_level,
        topics=image.topics,
        deleted_topic_ids=image.deleted_topic_ids,
        nodes=image.nodes,
        removed_node_ids=image.removed_node_ids,
    )
