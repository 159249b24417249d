"""The client's view: changes merged, older controller epochs ignored, hints until the controller has newer state."""

from __future__ import annotations

from dataclasses import replace

from tests.client.fake_cluster import TOPIC, TOPIC_ID, FakeCluster

from strandline.client.view import ClusterView
from strandline.core.messages import Endpoint, MetadataImage
from strandline.core.types import LeaderEpoch, NodeId


def image_of(cluster: FakeCluster, *, is_snapshot: bool = True) -> MetadataImage:
    return replace(cluster.image(), is_snapshot=is_snapshot)


def test_change_needs_a_snapshot_first() -> None:
    """A change without the state that it changes is not applied."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()

    assert not view.apply(image_of(cluster, is_snapshot=False))
    assert view.image is None


def test_changes_are_merged() -> None:
    """A change replaces whole topics and nodes, deletes what it names, and keeps the rest."""
    cluster = FakeCluster(2, 1)
    view = ClusterView()
    view.apply(image_of(cluster))
    change = replace(image_of(cluster, is_snapshot=False), nodes=(), topics=(), deleted_topic_ids=(TOPIC_ID,))
    view.apply(change)

    assert view.topic(TOPIC) is None
    assert view.node(NodeId(1)) is not None


def test_a_removed_node_is_forgotten() -> None:
    """A change removes the nodes that it names as removed, until they register again."""
    cluster = FakeCluster(2, 1)
    view = ClusterView()
    view.apply(image_of(cluster))
    change = replace(image_of(cluster, is_snapshot=False), nodes=(), topics=(), removed_node_ids=(NodeId(1),))
    view.apply(change)
    removed = (view.node(NodeId(1)), view.image.removed_node_ids if view.image else None)
    view.apply(image_of(cluster, is_snapshot=False))

    assert removed == (None, (1,))
    assert view.node(NodeId(1)) is not None
    assert view.image is not None
    assert view.image.removed_node_ids == ()


def test_older_reign_is_ignored() -> None:
    """Metadata from a controller that was replaced is not accepted any more, nor from another cluster's."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()
    cluster.controller_epoch = 5
    view.apply(image_of(cluster))
    cluster.controller_epoch = 4

    assert not view.apply(image_of(cluster))
    assert not view.apply(replace(image_of(cluster), cluster_id="other", controller_epoch=9))


def test_hint_counts_until_metadata_catches_up() -> None:
    """A hinted leader of a newer epoch is used; the controller's metadata of that epoch replaces it."""
    cluster = FakeCluster(2, 1)
    view = ClusterView()
    view.apply(image_of(cluster))
    elsewhere = Endpoint("h", 9)
    older = view.hint(cluster.tp(), NodeId(1), LeaderEpoch(1), elsewhere)
    newer = view.hint(cluster.tp(), NodeId(1), LeaderEpoch(2), elsewhere)
    again = view.hint(cluster.tp(), NodeId(1), LeaderEpoch(2), elsewhere)
    hinted = view.leader_of(cluster.tp())
    cluster.leaders[cluster.tp()] = (1, 2)
    view.apply(image_of(cluster))
    reported = view.leader_of(cluster.tp())

    assert (older, newer, again) == (False, True, False)
    assert hinted == (1, 2, elsewhere)
    assert reported == (1, 2, cluster.nodes[1].endpoint)


def test_nobody_leads() -> None:
    """A partition without a leader, an unknown partition and an unknown topic have none."""
    cluster = FakeCluster(1, 1)
    cluster.leaders[cluster.tp()] = (None, 2)
    view = ClusterView()
    view.apply(image_of(cluster))

    assert view.leader_of(cluster.tp()) is None
    assert view.leader_of(cluster.tp(3)) is None
    assert view.partition(cluster.tp(3)) is None
