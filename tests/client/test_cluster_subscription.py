"""A client that subscribes at any process: what it asks for, what it believes, and when it goes elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.client.fake_cluster import Refuse, fake_cluster, until
from tests.core.test_metadata_history import image, node, partition, topic
from tests.subscriptions.served_metadata import Served, served

from strandline.client import ControllersAway, Producer
from strandline.client.metadata import Cluster, parse_bootstrap
from strandline.core.errors import ErrorCode
from strandline.core.messages import Endpoint
from strandline.core.types import TopicPartition
from strandline.v1 import controller_service_pb2 as pb

TP = TopicPartition("id-a", 0)


def seen(client: Cluster) -> int | None:
    """The leader epoch that the client knows of the one partition."""
    known = client.view.partition(TP)
    return known.leader_epoch if known is not None else None


def at_epoch(cluster: Served, epoch: int, *, offset: int | None = None) -> None:
    """The partition has this leader epoch, as of this offset."""
    cluster.take(image(offset or epoch, topic("a", partition("a", 0, epoch=epoch)), whole=False))


@asynccontextmanager
async def client_of(*addresses: str, want: str = "a", **settings: int | bool) -> AsyncIterator[Cluster]:
    """A client that asks at these addresses in this order."""
    client = Cluster(list(addresses), **settings)  # type: ignore[arg-type]
    client._drawn = parse_bootstrap(addresses)
    await client.start()
    try:
        if want:
            client.want(want)
            await until(lambda: seen(client) is not None)
        yield client
    finally:
        await client.close()


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
    async with (
        served(*states) as first,
        served(*states) as second,
        client_of(first.address, second.address) as client,
    ):
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
