"""The watch on the controller: the next address when one is silent or down, and bounded waits."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster, until

from strandline.client import NotAController, metadata
from strandline.client.metadata import Cluster, parse_bootstrap
from strandline.core.errors import ErrorCode, Refusal, Refused


def test_bootstrap_is_a_list() -> None:
    """Addresses are given as one string or as a list; an empty list is rejected."""
    assert parse_bootstrap("a:1, b:2") == parse_bootstrap(["a:1", "b:2"]) == [("a", 1), ("b", 2)]
    with pytest.raises(ValueError, match="names no address"):
        parse_bootstrap(" ,")


async def test_second_address_is_tried() -> None:
    """A bootstrap address that refuses the connection does not keep the client from the next."""
    async with fake_cluster() as cluster:
        client = Cluster(f"127.0.0.1:1,{cluster.bootstrap}")
        await client.start()
        try:
            assert client.view.topic(TOPIC) is not None
            assert (await client.fetch_image()).cluster_id == "c"
        finally:
            await client.close()


async def test_data_nodes_as_bootstrap_are_named_at_once() -> None:
    """When only data nodes answer, the client fails at once and says that the controller's address is needed."""
    async with fake_cluster(nodes=2) as cluster:
        addresses = [f"{node.endpoint.host}:{node.endpoint.port}" for node in cluster.nodes]
        client = Cluster(addresses, timeout_ms=60_000)
        async with asyncio.timeout(10):
            with pytest.raises(NotAController, match=f"{addresses[0]}, {addresses[1]} are not controllers.* address"):
                await client.start()


async def test_a_data_node_beside_the_controller_is_passed_over() -> None:
    """A data node in the bootstrap list does not keep the client from the controller behind it."""
    async with fake_cluster() as cluster:
        node = cluster.nodes[0].endpoint
        client = Cluster([f"{node.host}:{node.port}", cluster.bootstrap])
        await client.start()
        try:
            assert client.view.topic(TOPIC) is not None
        finally:
            await client.close()


async def test_silence_opens_the_watch_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch without any message is replaced, so that a hung controller is detected."""
    monkeypatch.setattr(metadata, "WATCH_SILENCE_MS", 50)
    async with fake_cluster() as cluster:
        client = Cluster(cluster.bootstrap)
        await client.start()
        try:
            first = set(cluster.controller.watchers)
            await until(lambda: bool(cluster.controller.watchers - first))
        finally:
            await client.close()


async def test_the_age_of_what_is_known_can_be_reported() -> None:
    """Every message of the watch moves the time at which the controller was last heard; before the first it is None."""
    async with fake_cluster() as cluster:
        client = Cluster(cluster.bootstrap)
        assert client.heard_s is None
        await client.start()
        try:
            first = client.heard_s
            assert first is not None
            cluster.move_leader(None)
            await until(lambda: client.heard_s is not None and client.heard_s > first)
        finally:
            await client.close()


async def test_waits_have_deadlines() -> None:
    """A wait that times out is rejected with the caller's message; a result is returned at once."""
    async with fake_cluster() as cluster:
        client = Cluster(cluster.bootstrap)
        await client.start()
        try:
            gone = Refusal(ErrorCode.LEADER_NOT_AVAILABLE, "still led")
            with pytest.raises(Refused, match="still led"):
                await client.wait_for(lambda view: None, otherwise=gone, deadline_ms=20)
            waiting = asyncio.create_task(
                client.wait_for(lambda view: view.leader_of(cluster.tp()) is None or None, otherwise=gone)
            )
            cluster.move_leader(None)

            assert await waiting
        finally:
            await client.close()
