"""The newest metadata as a node keeps it in a file: its wire form behind a checksum.

Invariant: bytes that are not exactly what was written read as nothing, never as older or other metadata.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import crc32c
from google.protobuf.message import DecodeError

from strandline.core.errors import Refused
from strandline.core.messages import MetadataImage, PositionProof
from strandline.rpc.convert_metadata import (
    read_image,
    read_position,
    read_watch_answer,
    write_position,
    write_watch_answer,
)
from strandline.v1 import controller_service_pb2, metadata_pb2

_HEAD = struct.Struct(">4sI")
_MAGIC = b"SLM2"
"""The body is a WatchMetadataResponse: the image as it came, with its proof."""

_WITHOUT_PROOF = b"SLM1"
"""As releases before feature level 2 wrote it: ClusterMetadata alone."""


def image_to_bytes(image: MetadataImage) -> bytes:
    """A whole snapshot as file content."""
    message = write_watch_answer(image, image.to_node_epoch)
    if image.position is not None and not _is_of(image, image.position):
        message.ClearField("position_mac")
        later = write_position(image.position)
        assert later is not None
        message.later_position.CopyFrom(later)
    registered = write_position(image.registered)
    if registered is not None:
        message.registered_position.CopyFrom(registered)
    body = message.SerializeToString()
    return _HEAD.pack(_MAGIC, crc32c.crc32c(body)) + body


def image_from_bytes(content: bytes) -> MetadataImage | None:
    """The snapshot in a file's content; None if it is damaged."""
    if len(content) < _HEAD.size:
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
