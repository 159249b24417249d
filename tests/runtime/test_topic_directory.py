"""Names and ids of the newest metadata."""

from __future__ import annotations

from dataclasses import replace

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Endpoint, MetadataImage, NodeImage, TopicImage
from strandline.core.types import NodeEpoch, NodeId, Rules
from strandline.runtime.host import TopicDirectory


def _image(*topics: TopicImage, snapshot: bool = True, deleted: tuple[str, ...] = ()) -> MetadataImage:
    node = NodeImage(
        node_id=NodeId(1),
        node_epoch=NodeEpoch(1),
        client_endpoint=Endpoint("c", 1),
        internal_endpoint=Endpoint("i", 2),
    )
    return MetadataImage(
        cluster_id="cluster",
        controller_epoch=1,
        metadata_offset=5,
        is_snapshot=snapshot,
        rules=Rules(),
        nodes=(node,),
        topics=topics,
        deleted_topic_ids=deleted,
    )


def _code(found: str | Refusal) -> ErrorCode:
    assert isinstance(found, Refusal)
    return found.code


def test_a_topic_is_found_by_name_by_id_and_by_both() -> None:
    """A topic's name, its id, and both together lead to the id."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="id-a")))

    assert [topics.resolve("a", ""), topics.resolve("", "id-a"), topics.resolve("a", "id-a")] == ["id-a"] * 3
    assert topics.name_of("id-a") == "a"


def test_what_cannot_be_resolved_is_refused_with_its_own_code() -> None:
    """An unknown name, a mismatch, and a missing topic each have their own error."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="id-a")))

    assert _code(topics.resolve("b", "")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _code(topics.resolve("b", "id-a")) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert _code(topics.resolve("", "")) is ErrorCode.INVALID_REQUEST


def test_a_topic_made_again_under_its_name_is_another() -> None:
    """The name leads to the newest id; deleting the older one does not remove the name (M63)."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="old")))
    topics.apply(_image(TopicImage(name="a", topic_id="new"), snapshot=False, deleted=("old",)))

    assert topics.resolve("a", "") == "new"
    assert topics.name_of("old") == ""


def test_a_deletion_that_comes_later_leaves_the_name_to_the_newer_topic() -> None:
    """A name that another topic has by then goes on leading there."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="old")))
    topics.apply(_image(TopicImage(name="a", topic_id="new"), snapshot=False))
    topics.apply(_image(snapshot=False, deleted=("old",)))

    assert topics.resolve("a", "") == "new"
    assert topics.name_of("old") == ""


def test_a_snapshot_replaces_all_that_was_known() -> None:
    """A topic that is missing in a snapshot is gone."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="id-a")))
    topics.apply(_image())

    assert _code(topics.resolve("a", "")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nodes_are_known_by_both_addresses() -> None:
    """Clients and nodes get different addresses of one node."""
    topics = TopicDirectory()
    topics.apply(_image())

    assert topics.endpoint_of(NodeId(1)) == Endpoint("c", 1)
    assert topics.internal_endpoint_of(NodeId(1)) == Endpoint("i", 2)
    assert topics.internal_endpoint_of(NodeId(9)) is None


def test_a_removed_node_has_no_address() -> None:
    """After a change that removes a node no connection to its old addresses remains (C85)."""
    topics = TopicDirectory()
    topics.apply(_image())
    topics.apply(replace(_image(snapshot=False), nodes=(), removed_node_ids=(NodeId(1),)))

    assert topics.endpoint_of(NodeId(1)) is None
    assert topics.internal_endpoint_of(NodeId(1)) is None
