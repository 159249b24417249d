"""Which replica a reader of followers asks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.client.fake_cluster import FakeCluster

from strandline.client.cluster.view import ClusterView
from strandline.client.consume.fetching import choose_replica
from strandline.core.messages import Endpoint, MetadataImage
from strandline.core.types import NodeId
from strandline.rpc.convert.subscription import update_of_image

RACKS = {0: "a", 1: "b", 2: "b", 3: "c"}


def image() -> MetadataImage:
    """Four nodes at ports 1000 to 1003 in three racks, all in sync; node 0 leads."""
    cluster = FakeCluster(4, 1)
    cluster.racks = dict(RACKS)
    for node in cluster.nodes:
        node.endpoint = Endpoint("n", 1000 + node.node_id)
    return cluster.image()


def chosen(of: MetadataImage, rack: str | None, *, draws: range = range(8)) -> set[int]:
    """The nodes that consumers with these draws read from."""
    view = ClusterView()
    view.apply(update_of_image(of))
    (topic,) = of.topics
    (partition,) = topic.partitions
    leader = view.leader_of(partition.tp)
    assert leader is not None
    return {choose_replica(view, partition, leader, rack=rack, draw=draw).port - 1000 for draw in draws}


def with_isr(*node_ids: int) -> MetadataImage:
    """The image with only these in sync."""
    whole = image()
    (topic,) = whole.topics
    (partition,) = topic.partitions
    changed = replace(partition, isr=tuple(NodeId(node_id) for node_id in node_ids))
    return replace(whole, topics=(replace(topic, partitions=(changed,)),))


def without(image_: MetadataImage, *node_ids: int) -> MetadataImage:
    """The image with these nodes fenced."""
    nodes = tuple(replace(node, fenced=node.node_id in node_ids) for node in image_.nodes)
    return replace(image_, nodes=nodes)


@pytest.mark.parametrize(
    ("of", "rack", "expected"),
    [
        (image(), "b", {1, 2}),
        (image(), "c", {3}),
        (image(), "a", {0}),
        (image(), "elsewhere", {1, 2, 3}),
        (image(), None, {1, 2, 3}),
        (with_isr(0, 2, 3), "b", {2}),
        (with_isr(0, 3), "b", {3}),
        (with_isr(0), "b", {1, 2}),
        (with_isr(0), "elsewhere", {1, 2, 3}),
        (without(image(), 1), "b", {2}),
        (without(image(), 1, 2, 3), "b", {0}),
    ],
    ids=[
        "in the rack",
        "one in the rack",
        "only the leader is in the rack",
        "nobody in the rack",
        "no rack",
        "in the rack and in sync",
        "in sync goes before the rack",
        "nobody else in sync",
        "nobody else in sync, none in the rack",
        "the rack's other one is gone",
        "only the leader lives",
    ],
)
def test_rack_first_then_spread(of: MetadataImage, rack: str | None, expected: set[int]) -> None:
    """An in-sync replica in the reader's rack goes first; readers are spread over all that are equally good."""
    assert chosen(of, rack) == expected


def test_a_reader_stays_with_its_choice() -> None:
    """The same draw chooses the same replica again."""
    assert all(len(chosen(image(), "b", draws=range(draw, draw + 1))) == 1 for draw in range(8))
