"""A client that subscribes to the metadata of one partition, at addresses in a given order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.client.fake_cluster import until
from tests.core.metadata_images import image, partition, topic
from tests.subscriptions.served_metadata import Served

from strandline.client.cluster.metadata import Cluster, parse_bootstrap
from strandline.core.types import TopicPartition

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
