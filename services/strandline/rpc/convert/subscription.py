"""Subscriptions to the metadata on the wire, in both directions.

Invariant: both directions are exact inverses for everything that a subscriber may act on; what a message leaves out
stays None, so that an unchanged setting is never read as its default.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

import crc32c
from google.protobuf.message import DecodeError

from strandline.core import messages as core_messages
from strandline.core.errors import Refused
from strandline.core.state_events import Audit
from strandline.core.types import NodeId, Rules
from strandline.rpc.convert import metadata
from strandline.rpc.wire_fields import tag, varint
from strandline.v1 import (
    controller_service_pb2,
    metadata_pb2,
    metadata_service_pb2 as pb,
    partition_pb2,
    state_event_pb2,
)


@dataclass(frozen=True, slots=True)
class KnownController:
    """One controller, with its known addresses."""

    controller_id: int
    client: core_messages.Endpoint | None = None
    internal: core_messages.Endpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataUpdate:
    """One message of a subscription as its subscriber reads it; a field that is None or empty has not changed."""

    as_of: core_messages.AsOf
    is_snapshot: bool = False
    cluster_id: str = ""
    rules: Rules | None = None
    feature_level: int | None = None
    topics: tuple[core_messages.TopicImage, ...] = ()
    changed: tuple[tuple[str, tuple[core_messages.PartitionImage, ...]], ...] = ()
    """Partitions by topic id."""
    deleted_topic_ids: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    """Subscribed topics that do not exist, by name and id."""
    nodes: tuple[core_messages.NodeImage, ...] = ()
    removed_node_ids: tuple[NodeId, ...] = ()
    controllers: tuple[KnownController, ...] = ()

    @property
    def is_sign_of_life(self) -> bool:
        """Whether it only says how current the sender is."""
        news = (self.is_snapshot, self.rules, self.feature_level, self.topics, self.changed, self.deleted_topic_ids)
        return not any((*news, self.missing, self.nodes, self.removed_node_ids))


def write_as_of(as_of: core_messages.AsOf) -> pb.AsOf:
    """A position with its age and sender."""
    message = pb.AsOf(
        controller_epoch=as_of.controller_epoch,
        reign_id=as_of.reign_id,
        metadata_offset=as_of.metadata_offset,
        age_ms=as_of.age_ms,
    )
    if as_of.node_id is None:
        message.controller_id = metadata.CONTROLLER_ID
    else:
        message.node_id = as_of.node_id
    return message


def read_as_of(message: pb.AsOf) -> core_messages.AsOf:
    """A position with its age and sender."""
    return core_messages.AsOf(
        controller_epoch=message.controller_epoch,
        metadata_offset=message.metadata_offset,
        reign_id=message.reign_id,
        age_ms=message.age_ms,
        node_id=NodeId(message.node_id) if message.HasField("node_id") else None,
    )


def write_wanted(wanted: core_messages.Wanted, cluster_id: str | None) -> pb.SubscribeRequest:
    """One message of a subscriber."""
    return pb.SubscribeRequest(
        cluster_id=cluster_id,
        add_topics=_write_refs(wanted.add),
        remove_topics=_write_refs(wanted.remove),
        all_topics=wanted.all_topics,
        since=None if wanted.since is None else write_as_of(wanted.since),
    )


def read_wanted(message: pb.SubscribeRequest) -> core_messages.Wanted:
    """One message of a subscriber."""
    return core_messages.Wanted(
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
    """The addresses of controllers."""
    return [
        pb.ControllerEndpoints(
            controller_id=one.controller_id, endpoints=metadata.write_endpoints(one.client, one.internal)
        )
        for one in known
    ]


def read_controllers(messages: Iterable[pb.ControllerEndpoints]) -> tuple[KnownController, ...]:
    """The addresses of controllers."""
    return tuple(_read_controller(message) for message in messages)


def _read_controller(message: pb.ControllerEndpoints) -> KnownController:
    ends = message.endpoints
    return KnownController(
        message.controller_id,
        metadata.read_endpoint(ends.client) if ends.HasField("client") else None,
        metadata.read_endpoint(ends.internal) if ends.HasField("internal") else None,
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
        rules=metadata.read_rules(message.rules, Rules()) if message.HasField("rules") else None,
        feature_level=message.feature_level or None,
        topics=tuple(metadata.read_topic(topic) for topic in message.topics),
        changed=tuple(
            (
                topic.topic_id,
                tuple(metadata.read_partition(topic.topic_id, partition) for partition in topic.partitions),
            )
            for topic in message.changed_topics
        ),
        deleted_topic_ids=tuple(message.deleted_topic_ids),
        missing=_read_refs(message.missing_topics),
        nodes=tuple(metadata.read_node(node) for node in message.nodes),
        removed_node_ids=tuple(NodeId(node_id) for node_id in message.removed_node_ids),
        controllers=read_controllers(message.controllers),
    )


def read_current_metadata(
    message: pb.MetadataServiceGetMetadataResponse,
) -> tuple[core_messages.AsOf, core_messages.MetadataImage]:
    """The state that a process knows, and how current it is.

    Raises:
        Refused: INVALID_REQUEST when the rules have a value of a later release.
    """
    return read_as_of(message.as_of), metadata.read_image(message.metadata, is_snapshot=True)


def update_of_image(image: core_messages.MetadataImage) -> MetadataUpdate:
    """An image from a watch of an earlier release, or a whole state, as an update; both have whole topics."""
    return MetadataUpdate(
        as_of=core_messages.AsOf(image.controller_epoch, image.metadata_offset),
        is_snapshot=image.is_snapshot,
        cluster_id=image.cluster_id,
        rules=image.rules,
        feature_level=image.feature_level,
        topics=image.topics,
        deleted_topic_ids=image.deleted_topic_ids,
        nodes=image.nodes,
        removed_node_ids=image.removed_node_ids,
    )


# ---- metadata_bytes
# The newest metadata as a node keeps it in a file: its wire form behind a checksum.
#
# Invariant: damaged bytes are read as no metadata, never as older or other metadata.

_HEAD = struct.Struct(">4sI")
_MAGIC = b"SLM2"
"""The body is a WatchMetadataResponse: the image as it arrived, with its proof."""

_METADATA = tag(controller_service_pb2.WatchMetadataResponse, "metadata")
_TOPICS = tag(metadata_pb2.ClusterMetadata, "topics")

_WITHOUT_PROOF = b"SLM1"
"""The form that releases before feature level 2 wrote: ClusterMetadata only."""


class ImageWriter:
    """Writes successive snapshots. Topics that are still the same objects are not encoded again, so that a change of a
    few partitions costs only the encoding of their topics."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[core_messages.TopicImage, bytes]] = {}

    def to_bytes(self, image: core_messages.MetadataImage) -> bytes:
        """A whole snapshot as file content."""
        self._topics = {topic.topic_id: _encoded(topic, self._topics.get(topic.topic_id)) for topic in image.topics}
        pieces = [metadata.write_image(replace(image, topics=())).SerializeToString()]
        for _, encoded in self._topics.values():
            pieces += (_TOPICS, varint(len(encoded)), encoded)
        head = _around(image).SerializeToString()
        body = b"".join((head, _METADATA, varint(sum(map(len, pieces))), *pieces))
        return _HEAD.pack(_MAGIC, crc32c.crc32c(body)) + body


def _encoded(
    topic: core_messages.TopicImage, known: tuple[core_messages.TopicImage, bytes] | None
) -> tuple[core_messages.TopicImage, bytes]:
    if known is not None and known[0] is topic:
        return known
    return topic, metadata.write_topic(topic).SerializeToString()


def _around(image: core_messages.MetadataImage) -> controller_service_pb2.WatchMetadataResponse:
    """The fields that are written around the metadata itself."""
    own = image.position if image.position is not None and _is_of(image, image.position) else None
    message = metadata.write_watch_news(
        None, is_snapshot=image.is_snapshot, to_node_epoch=image.to_node_epoch, position=own
    )
    if image.position is not None and own is None:
        message.later_position.CopyFrom(metadata.POSITION.write(image.position))
    if image.registered is not None:
        message.registered_position.CopyFrom(metadata.POSITION.write(image.registered))
    return message


def image_from_bytes(content: bytes) -> core_messages.MetadataImage | None:
    """The snapshot in a file's content; None if it is damaged."""
    if len(content) <= _HEAD.size:
        return None
    magic, crc = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    if magic not in (_MAGIC, _WITHOUT_PROOF) or crc32c.crc32c(body) != crc:
        return None
    try:
        if magic == _WITHOUT_PROOF:
            return metadata.read_image(metadata_pb2.ClusterMetadata.FromString(body), is_snapshot=True)
        message = controller_service_pb2.WatchMetadataResponse.FromString(body)
        image = metadata.read_watch_answer(message)
        if image is not None and message.HasField("later_position"):
            image = replace(image, position=metadata.POSITION.read(message.later_position))
        if image is not None and message.HasField("registered_position"):
            image = replace(image, registered=metadata.POSITION.read(message.registered_position))
        return image
    except (DecodeError, Refused):
        # Refused: rules of a later release. Their snapshot is of no use to this one, but must not stop the node.
        return None


def _is_of(image: core_messages.MetadataImage, position: core_messages.PositionProof) -> bool:
    return (position.controller_epoch, position.metadata_offset) == (image.controller_epoch, image.metadata_offset)


Recent = tuple[int, Audit]
"""When an event was recorded, in microseconds since 1970, and the event."""


def write_audit(wall_us: int, event: Audit) -> state_event_pb2.StateEvent:
    """An audit event in the form of the export, but with only some fields of the export's envelope."""
    named = {name: value for name, value in event._asdict().items() if name not in ("first_ms", "last_ms")}
    return state_event_pb2.StateEvent(event_type=state_event_pb2.STATE_EVENT_TYPE_AUDIT, ts_wall_us=wall_us, **named)
