"""The newest metadata as a node keeps it in a file: its wire form behind a checksum.

Invariant: bytes that are not exactly what was written read as nothing, never as older or other metadata.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import crc32c
from google.protobuf.message import DecodeError

from strandline.core.errors import Refused
from strandline.core.messages import MetadataImage, PositionProof, TopicImage
from strandline.rpc.convert_metadata import (
    read_image,
    read_position,
    read_watch_answer,
    write_image,
    write_position,
    write_topic,
    write_watch_news,
)
from strandline.rpc.wire_fields import tag, varint
from strandline.v1 import controller_service_pb2, metadata_pb2

_HEAD = struct.Struct(">4sI")
_MAGIC = b"SLM2"
"""The body is a WatchMetadataResponse: the image as it came, with its proof."""

_METADATA = tag(controller_service_pb2.WatchMetadataResponse, "metadata")
_TOPICS = tag(metadata_pb2.ClusterMetadata, "topics")

_WITHOUT_PROOF = b"SLM1"
"""As releases before feature level 2 wrote it: ClusterMetadata alone."""


class ImageWriter:
    """Writes one snapshot after the other. Topics that stayed the same objects are not encoded again: a change of a few
    partitions costs what these topics cost, however many there are."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[TopicImage, bytes]] = {}

    def to_bytes(self, image: MetadataImage) -> bytes:
        """A whole snapshot as file content."""
        known = self._topics
        self._topics = {topic.topic_id: _encoded(topic, known.get(topic.topic_id)) for topic in image.topics}
        pieces = [write_image(replace(image, topics=())).SerializeToString()]
        for _, encoded in self._topics.values():
            pieces += (_TOPICS, varint(len(encoded)), encoded)
        head = _around(image).SerializeToString()
        body = b"".join((head, _METADATA, varint(sum(map(len, pieces))), *pieces))
        return _HEAD.pack(_MAGIC, crc32c.crc32c(body)) + body


def _encoded(topic: TopicImage, known: tuple[TopicImage, bytes] | None) -> tuple[TopicImage, bytes]:
    if known is not None and known[0] is topic:
        return known
    return topic, write_topic(topic).SerializeToString()


def _around(image: MetadataImage) -> controller_service_pb2.WatchMetadataResponse:
    """What is written beside the metadata itself."""
    own = image.position if image.position is not None and _is_of(image, image.position) else None
    message = write_watch_news(None, is_snapshot=image.is_snapshot, to_node_epoch=image.to_node_epoch, position=own)
    if image.position is not None and own is None:
        later = write_position(image.position)
        assert later is not None
        message.later_position.CopyFrom(later)
    registered = write_position(image.registered)
    if registered is not None:
        message.registered_position.CopyFrom(registered)
    return message


def image_to_bytes(image: MetadataImage) -> bytes:
    """A whole snapshot as file content."""
    return ImageWriter().to_bytes(image)


def image_from_bytes(content: bytes) -> MetadataImage | None:
    """The snapshot in a file's content; None if it is damaged."""
    if len(content) <= _HEAD.size:
        return None
    magic, crc = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    if magic not in (_MAGIC, _WITHOUT_PROOF) or crc32c.crc32c(body) != crc:
        return None
    try:
        if magic == _WITHOUT_PROOF:
            return read_image(metadata_pb2.ClusterMetadata.FromString(body), is_snapshot=True)
        message = controller_service_pb2.WatchMetadataResponse.FromString(body)
        image = read_watch_answer(message)
        if image is not None and message.HasField("later_position"):
            image = replace(image, position=read_position(message.later_position))
        if image is not None and message.HasField("registered_position"):
            image = replace(image, registered=read_position(message.registered_position))
        return image
    except (DecodeError, Refused):
        # The second: rules of a later release. Their snapshot says nothing to this one, but stops no node.
        return None


def _is_of(image: MetadataImage, position: PositionProof) -> bool:
    return (position.controller_epoch, position.metadata_offset) == (image.controller_epoch, image.metadata_offset)
