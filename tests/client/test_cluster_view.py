"""The client's view of the cluster: changes merged, subscribed at any process, watched at the controller."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, TOPIC_ID, FakeCluster, Refuse, fake_cluster, until
from tests.client.subscribed_client import at_epoch, client_of, seen
from tests.core.metadata_images import image, node, partition, topic
from tests.subscriptions.served_metadata import served

from strandline.client import ControllersAway, NotAController, Producer
from strandline.client.cluster import metadata
from strandline.client.cluster.metadata import Cluster, parse_bootstrap
from strandline.client.cluster.view import ClusterView, UpdateTaken
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import AsOf, Endpoint, MetadataImage
from strandline.core.types import LeaderEpoch, NodeId
from strandline.rpc.convert import subscription
from strandline.rpc.convert.subscription import MetadataUpdate, update_of_image
from strandline.v1 import controller_service_pb2 as pb


def image_of(cluster: FakeCluster, *, is_snapshot: bool = True) -> MetadataImage:
    return replace(cluster.image(), is_snapshot=is_snapshot)


def test_change_needs_a_snapshot_first() -> None:
    """A change without the state that it changes is not applied."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()

    assert view.apply(update_of_image(image_of(cluster, is_snapshot=False))) is UpdateTaken.UNUSABLE
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

    assert taken == [UpdateTaken.OLDER, UpdateTaken.OLDER]
    assert leader.epoch == 7


def test_the_greatest_position_is_the_one_that_counts() -> None:
    """A sign of life moves the position on, though nothing is sent for it, and never back; what is before is older."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()
    view.apply(at(cluster, 1, 1, 1))
    taken = [view.apply(MetadataUpdate(as_of=AsOf(1, 5))), view.apply(at(cluster, 1, 4, 2))]
    view.apply(MetadataUpdate(as_of=AsOf(1, 2)))

    assert (taken, view.newest[:2]) == ([UpdateTaken.NOTHING, UpdateTaken.OLDER], (1, 5))


def test_another_clusters_state_is_not_believed() -> None:
    """An address that belongs to another cluster now says nothing about ours."""
    cluster = FakeCluster(1, 1)
    view = ClusterView()
    view.apply(at(cluster, 5, 1, 1))

    assert view.apply(replace(at(cluster, 9, 9, 1), cluster_id="other")) is UpdateTaken.UNUSABLE


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

    assert taken is UpdateTaken.NEWS
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


async def test_a_data_node_is_a_bootstrap_address() -> None:
    """A client starts at a data node, and is sent the topics that it uses, and no other."""
    async with (
        served(image(1, topic("a"), topic("b"), nodes=(node(1),))) as cluster,
        client_of(cluster.address) as client,
    ):
        names = [known.name for known in client.image.topics]
        nodes = [known.node_id for known in client.image.nodes]

    assert (names, nodes) == (["a"], [1])


async def test_everything_if_it_is_asked_for() -> None:
    """A client that shows the cluster follows every topic, those that are created later included."""
    async with (
        served(image(1, topic("a"), topic("b"))) as cluster,
        client_of(cluster.address, all_topics=True) as client,
    ):
        cluster.take(image(2, topic("c"), whole=False))
        await until(lambda: client.view.topic("c") is not None)

    assert [known.name for known in client.image.topics] == ["a", "b", "c"]


async def test_a_topic_is_known_once_it_exists() -> None:
    """A wait for a topic that is missing ends with its creation."""
    async with served(image(1)) as cluster, client_of(cluster.address, want="") as client:
        waiting = asyncio.create_task(client.topic("a"))
        await until(lambda: "a" in client._wanted.held)
        cluster.take(image(2, topic("a"), whole=False))
        found = await waiting

    assert found == topic("a")


async def test_never_back_from_a_fresh_node_to_a_stale_one() -> None:
    """TR35: behind the death of a fresh node a client keeps what it has until another one has something newer."""
    stale_images = (image(1, topic("a", partition("a", 0, epoch=1))),)
    async with (
        served(*stale_images) as stale,
        served(image(9, topic("a", partition("a", 0, epoch=9)))) as fresh,
        client_of(fresh.address, stale.address) as client,
    ):
        await fresh.server.stop(None)
        await until(lambda: stale.feed.follower_count > 0)
        at_epoch(stale, 3)
        await until(lambda: client.heard_s is not None and stale.history.next_number == 1)
        kept = seen(client)
        at_epoch(stale, 10)
        await until(lambda: seen(client) == 10)

    assert kept == 9


async def test_the_next_server_sends_only_what_is_new() -> None:
    """A client that comes from another server goes on behind its position, with the topics that it holds."""
    states = [image(1, topic("a")), image(2, topic("b"), whole=False)]
    async with served(*states) as first, served(*states) as second, client_of(first.address, second.address) as client:
        client.want("b")
        await until(lambda: client.view.topic("b") is not None)
        await first.server.stop(None)
        await until(lambda: second.feed.follower_count > 0)
        held = client.view.topic("a"), client.view.topic("b")
        at_epoch(second, 3)
        await until(lambda: seen(client) == 3)

    assert held == (topic("a"), topic("b"))


async def test_a_stale_source_is_left_for_another() -> None:
    """Metadata that is too old is looked for elsewhere, and what is known stays in use meanwhile."""
    states = [image(1, topic("a"))]
    async with served(*states) as stale, served(*states) as fresh:
        stale.age_ms = 10_000
        async with client_of(stale.address, fresh.address, stale_ms=5_000, elsewhere_ms=0) as client:
            await until(lambda: fresh.feed.follower_count > 0)
            at_epoch(fresh, 2)
            await until(lambda: seen(client) == 2)
            age_ms = client.metadata_age_ms

    assert age_ms is not None
    assert age_ms < 10_000


async def test_a_source_that_is_old_but_the_only_one_is_kept_in_use() -> None:
    """Every controller away for long: the client goes on with what the only node has."""
    async with served(image(1, topic("a"))) as stale:
        stale.age_ms = 60_000
        async with client_of(stale.address, elsewhere_ms=0) as client:
            at_epoch(stale, 2)
            await until(lambda: seen(client) == 2)
            age_ms = client.metadata_age_ms

    assert age_ms is not None
    assert age_ms >= 60_000


async def test_every_node_is_a_source_once_it_is_known() -> None:
    """When no bootstrap address answers any more, the client goes to the nodes that it heard of."""
    async with served(image(1, topic("a"))) as other:
        host, _, port = other.address.rpartition(":")
        beside = replace(node(2), client_endpoint=Endpoint(host, int(port)))
        async with served(image(1, topic("a"), nodes=(beside,))) as first, client_of(first.address) as client:
            await first.server.stop(None)
            at_epoch(other, 2)
            await until(lambda: seen(client) == 2)


async def test_what_a_controller_decides_fails_with_the_addresses_tried() -> None:
    """Without a controller a change is refused before anything is asked, with the addresses that do not answer."""
    async with served(image(1)) as cluster, client_of(cluster.address, want="") as client:
        with pytest.raises(ControllersAway, match=r"controllers away: none answered at 127\.0\.0\.1:9000"):
            await client.ask_controller(lambda to: to.CreateTopics, pb.CreateTopicsRequest())


async def test_the_state_of_a_node_without_a_controller() -> None:
    """A question for the whole state is answered by the node when no controller is there."""
    async with served(image(4, topic("a"), topic("b"))) as cluster, client_of(cluster.address, want="") as client:
        whole = await client.fetch_image()

    assert ([known.name for known in whole.topics], whole.metadata_offset) == (["a", "b"], 4)


async def test_a_view_ten_elections_old_finds_the_leader_by_hints() -> None:
    """C64: with no controller to ask, each refusing node names the leader that it knows, and the last one leads."""
    async with fake_cluster(nodes=3) as cluster, Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"before")
        for leader in (1, 2, 0, 1, 2, 0, 1, 2, 0, 2):
            cluster.move_leader(leader, announce=False)
        await cluster._server.stop(None)
        # Node 0 knows of an election that node 1 won, and node 1 of the last one.
        moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.nodes[0].next_produce.append(Refuse(moved, hint=1, hint_epoch=8))
        cluster.nodes[1].next_produce.append(Refuse(moved, hint=2, hint_epoch=11))
        await producer.send_and_wait("t", b"after")

    assert cluster.log().values() == [b"before", b"after"]
    assert [len(node.produced) for node in cluster.nodes] == [2, 1, 1]


def test_bootstrap_is_a_list() -> None:
    """Addresses are given as one string or as a list; an empty list is rejected."""
    assert parse_bootstrap("a:1, b:2") == parse_bootstrap(["a:1", "b:2"]) == [("a", 1), ("b", 2)]
    with pytest.raises(ValueError, match="names no address"):
        parse_bootstrap(" ,")


async def test_data_nodes_as_bootstrap_are_named_at_once() -> None:
    """When only data nodes answer, the client fails at once and says that the controller's address is needed."""
    async with fake_cluster(nodes=2) as cluster:
        addresses = [f"{node.endpoint.host}:{node.endpoint.port}" for node in cluster.nodes]
        client = Cluster(addresses, timeout_ms=60_000)
        async with asyncio.timeout(10):
            with pytest.raises(NotAController, match=f"{addresses[0]}, {addresses[1]} are not controllers.* address"):
                await client.start()


@pytest.mark.parametrize("is_there", [False, True], ids=["refuses", "data node"])
async def test_an_address_that_is_no_controller_is_passed_over(is_there: bool) -> None:
    """A bootstrap address that refuses the connection, or is a data node's, does not keep the client from the next."""
    async with fake_cluster() as cluster:
        host, port = cluster.nodes[0].endpoint if is_there else ("127.0.0.1", 1)
        async with client_of(f"{host}:{port}", cluster.bootstrap, want="") as client:
            assert client.view.topic(TOPIC) is not None
            assert (await client.fetch_image()).cluster_id == "c"


async def test_silence_opens_the_watch_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch without any message is replaced, so that a hung controller is detected."""
    monkeypatch.setattr(metadata, "WATCH_SILENCE_MS", 50)
    async with fake_cluster() as cluster, client_of(cluster.bootstrap, want=""):
        first = set(cluster.controller.watchers)
        await until(lambda: bool(cluster.controller.watchers - first))


async def test_the_age_of_what_is_known_can_be_reported() -> None:
    """Every message of the watch moves the time at which the controller was last heard; before the first it is None."""
    async with fake_cluster() as cluster, client_of(cluster.bootstrap, want="") as client:
        first = client.heard_s
        assert Cluster(cluster.bootstrap).heard_s is None
        assert first is not None
        cluster.move_leader(None)
        await until(lambda: client.heard_s is not None and client.heard_s > first)


async def test_waits_have_deadlines() -> None:
    """A wait that times out is rejected with the caller's message; a result is returned at once."""
    async with fake_cluster() as cluster, client_of(cluster.bootstrap, want="") as client:
        gone = Refusal(ErrorCode.LEADER_NOT_AVAILABLE, "still led")
        with pytest.raises(Refused, match="still led"):
            await client.wait_for(lambda view: None, otherwise=gone, deadline_ms=20)
        waiting = asyncio.create_task(
            client.wait_for(lambda view: view.leader_of(cluster.tp()) is None or None, otherwise=gone)
        )
        cluster.move_leader(None)

        assert await waiting


async def test_what_a_later_release_sends_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose rules cannot be read is left for another one, or asked again."""
    read, refusals = subscription.read_update, [Refused(ErrorCode.INVALID_REQUEST, "an unknown value")]

    def once(message: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return read(message)

    monkeypatch.setattr(subscription, "read_update", once)
    async with served(image(1, topic("a", partition("a", 0)))) as cluster, client_of(cluster.address):
        assert not refusals
