"""The client's view: changes merged, older controller epochs ignored, hints until the controller has newer state."""

from __future__ import annotations

from dataclasses import replace

from tests.client.fake_cluster import TOPIC, TOPIC_ID, FakeCluster

from strandline.client.cluster.view import ClusterView, Taken
from strandline.core.messages import AsOf, Endpoint, MetadataImage
from strandline.core.types import LeaderEpoch, NodeId
from strandline.rpc.convert.subscription import MetadataUpdate, update_of_image


def image_of(cluster: FakeCluster, *, is_snapshot: bool = True) -> MetadataImage:
    return replace(cluster.image(), is_snapshot=is_snapshot)


def test_change_needs_a_snapshot_first() -> None:
    """A change without the state that it changes is not applied."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()

    assert view.apply(update_of_image(image_of(cluster, is_snapshot=False))) is Taken.UNUSABLE
    assert view.image is None


def test_changes_are_merged() -> None:
    """A change replaces whole topics and nodes, deletes what it names, and keeps the rest."""
    cluster = FakeCluster(2, 1)
    view = ClusterView()
    view.apply(update_of_image(image_of(cluster)))
    change = replace(image_of(cluster, is_snapshot=False), nodes=(), topics=(), deleted_topic_ids=(TOPIC_ID,))
    view.apply(update_of_image(change))

    assert view.topic(TOPIC) is None
    assert view.node(NodeId(1)) is not None


def test_a_removed_node_is_forgotten() -> None:
    """A change removes the nodes that it names as removed, until they register again."""
    cluster = FakeCluster(2, 1)
    view = ClusterView()
    view.apply(update_of_image(image_of(cluster)))
    change = replace(image_of(cluster, is_snapshot=False), nodes=(), topics=(), removed_node_ids=(NodeId(1),))
    view.apply(update_of_image(change))
    removed = (view.node(NodeId(1)), view.image.removed_node_ids if view.image else None)
    view.apply(update_of_image(image_of(cluster, is_snapshot=False)))

    assert removed == (None, (1,))
    assert view.node(NodeId(1)) is not None
    assert view.image is not None
    assert view.image.removed_node_ids == ()


def at(cluster: FakeCluster, epoch: int, offset: int, leader_epoch: int) -> MetadataUpdate:
    """The whole state as a server at this position has it."""
    cluster.leaders[cluster.tp()] = (0, leader_epoch)
    return update_of_image(replace(cluster.image(), controller_epoch=epoch, metadata_offset=offset))


def test_an_older_position_is_ignored_whoever_sends_it() -> None:
    """TR35: a client that goes from a fresh node to a stale one keeps what it has, whichever way the node is behind."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()
    view.apply(at(cluster, 5, 10, 7))
    taken = [view.apply(at(cluster, epoch, offset, 3)) for epoch, offset in ((4, 99), (5, 9))]
    leader = view.leader_of(cluster.tp())

    assert taken == [Taken.OLDER, Taken.OLDER]
    assert leader is not None
    assert leader.epoch == 7


def test_the_greatest_position_is_the_one_that_counts() -> None:
    """A sign of life moves the position too: what lies before it is older, though nothing was sent for it."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()
    view.apply(at(cluster, 1, 1, 1))
    moved = view.apply(MetadataUpdate(as_of=AsOf(1, 5)))
    older = view.apply(at(cluster, 1, 4, 2))

    assert (moved, older, view.newest[:2]) == (Taken.NOTHING, Taken.OLDER, (1, 5))


def test_an_older_sign_of_life_does_not_move_back() -> None:
    """A stale node's sign of life leaves the position where it is."""
    view = ClusterView()
    view.apply(at(FakeCluster(1, 1), 1, 5, 1))
    view.apply(MetadataUpdate(as_of=AsOf(1, 2)))

    assert view.newest[:2] == (1, 5)


def test_another_clusters_state_is_not_believed() -> None:
    """An address that belongs to another cluster now says nothing about ours."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()
    view.apply(at(cluster, 5, 1, 1))

    assert view.apply(replace(at(cluster, 9, 9, 1), cluster_id="other")) is Taken.UNUSABLE


def test_changed_partitions_are_put_into_their_topics() -> None:
    """A change that holds one partition leaves the others; one of a topic that is not followed changes nothing."""
    cluster = FakeCluster(1, 2)
    view = ClusterView()
    view.apply(at(cluster, 1, 1, 1))
    (moved, _) = at(cluster, 1, 2, 9).topics[0].partitions
    view.apply(MetadataUpdate(as_of=AsOf(1, 2), changed=((TOPIC_ID, (moved,)), ("another", (moved,)))))

    assert [leader.epoch for index in (0, 1) if (leader := view.leader_of(cluster.tp(index)))] == [9, 1]


def test_hint_counts_until_metadata_catches_up() -> None:
    """A hinted leader of a newer epoch is used; the controller's metadata of that epoch replaces it."""
    cluster = FakeCluster(2, 1)
    view = ClusterView()
    view.apply(update_of_image(image_of(cluster)))
    elsewhere = Endpoint("h", 9)
    older = view.hint(cluster.tp(), NodeId(1), LeaderEpoch(1), elsewhere)
    newer = view.hint(cluster.tp(), NodeId(1), LeaderEpoch(2), elsewhere)
    again = view.hint(cluster.tp(), NodeId(1), LeaderEpoch(2), elsewhere)
    hinted = view.leader_of(cluster.tp())
    cluster.leaders[cluster.tp()] = (1, 2)
    view.apply(update_of_image(image_of(cluster)))
    reported = view.leader_of(cluster.tp())

    assert (older, newer, again) == (False, True, False)
    assert hinted == (1, 2, elsewhere)
    assert reported == (1, 2, cluster.nodes[1].endpoint)


def test_a_hint_outlives_metadata_that_is_older_than_it() -> None:
    """Metadata that comes late, of an epoch before the hinted one, does not send the client back to the old leader."""
    cluster = FakeCluster(2, 1)
    view = ClusterView()
    view.apply(at(cluster, 1, 1, 1))
    elsewhere = Endpoint("h", 9)
    view.hint(cluster.tp(), NodeId(1), LeaderEpoch(3), elsewhere)
    taken = view.apply(at(cluster, 1, 2, 2))

    assert taken is Taken.NEWS
    assert view.leader_of(cluster.tp()) == (1, 3, elsewhere)


def test_nobody_leads() -> None:
    """A partition without a leader, an unknown partition and an unknown topic have none."""
    cluster = FakeCluster(1, 1)
    cluster.leaders[cluster.tp()] = (None, 2)
    view = ClusterView()
    view.apply(update_of_image(image_of(cluster)))

    assert view.leader_of(cluster.tp()) is None
    assert view.leader_of(cluster.tp(3)) is None
    assert view.partition(cluster.tp(3)) is None
