"""The metadata as a node saves it: read as it was, and only what changed encoded again."""

from __future__ import annotations

from dataclasses import replace

import crc32c
import pytest
from tests.core.test_metadata_history import image, node, partition, topic

from strandline.core.messages import PositionProof, Reign
from strandline.core.types import NodeEpoch
from strandline.rpc.convert import subscription
from strandline.rpc.convert.metadata import write_image
from strandline.rpc.convert.subscription import ImageWriter, image_from_bytes, image_to_bytes
from strandline.v1 import controller_service_pb2

ONE = image(7, topic("a", partition("a", 0)), topic("b"), nodes=(node(1),))
REIGN = Reign("a" * 32, ONE.controller_epoch, 1, "")
OWN = PositionProof(NodeEpoch(3), ONE.controller_epoch, 7, b"m" * 32, REIGN.reign_id)
LATER = OWN._replace(metadata_offset=9)
SAVED = replace(ONE, to_node_epoch=NodeEpoch(3), reigns=(REIGN,), removed_node_ids=(node(4).node_id,))


@pytest.mark.parametrize("position", [None, OWN, LATER])
@pytest.mark.parametrize("registered", [None, LATER])
def test_what_is_saved_is_read_as_it_was(position: PositionProof | None, registered: PositionProof | None) -> None:
    """With each of the positions that go with it, or without."""
    saved = replace(SAVED, position=position, registered=registered)

    assert image_from_bytes(image_to_bytes(saved)) == saved


def test_a_byte_that_changed_makes_it_no_metadata() -> None:
    """Wherever the byte is: damaged metadata is never read as other metadata."""
    content = image_to_bytes(replace(SAVED, position=OWN))
    flipped = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(len(content))]

    assert [image_from_bytes(one) for one in flipped] == [None] * len(flipped)


@pytest.mark.parametrize("body", [b"no message", b""], ids=["no message", "of a later release"])
def test_what_this_release_cannot_read_is_no_metadata(body: bytes) -> None:
    """A whole file that is no message, or has a rule that this release does not know, stops no node."""
    message = controller_service_pb2.WatchMetadataResponse(metadata=write_image(SAVED), is_snapshot=True)
    message.metadata.rules.truncation = 99  # type: ignore[assignment]
    body = body or message.SerializeToString()

    assert image_from_bytes(b"SLM2" + crc32c.crc32c(body).to_bytes(4, "big") + body) is None


@pytest.mark.parametrize("form", [b"SLM1", b"SLM2"])
def test_a_file_cut_off_behind_its_head_is_damaged(form: bytes) -> None:
    """A head alone is no metadata, though zeros are the checksum of nothing: a node must not read a cluster without
    nodes and topics from it."""
    assert image_from_bytes(form + bytes(4)) is None


def test_a_topic_that_stayed_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second save encodes the topic that changed; a topic that is gone is forgotten, and both read as they are."""
    encoded: list[str] = []
    real = subscription.write_topic
    monkeypatch.setattr(subscription, "write_topic", lambda each: encoded.append(each.name) or real(each))
    writer = ImageWriter()
    writer.to_bytes(SAVED)
    a, b = SAVED.topics
    changed = replace(SAVED, topics=(replace(a, partitions=(partition("a", 0, epoch=2),)), b))
    second = image_from_bytes(writer.to_bytes(changed))
    third = image_from_bytes(writer.to_bytes(replace(changed, topics=(b,))))
    writer.to_bytes(changed)

    assert encoded == ["a", "b", "a", "a"]
    assert second == changed
    assert third == replace(changed, topics=(b,))
