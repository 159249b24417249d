"""A server hangs: its connections stay open and it says nothing more. What was asked of it is asked elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import grpc
import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster, until
from tests.client.test_cluster_subscription import at_epoch, client_of, seen
from tests.client.test_consumer import write
from tests.core.test_metadata_history import image, topic
from tests.subscriptions.served_metadata import served

from strandline.client import Admin, ClusterUnreachable, Consumer, Producer, metadata
from strandline.client.coordinator import ATTEMPT_MS
from strandline.client.metadata import SILENCE_MS, Cluster
from strandline.rpc.channels import parse_endpoint
from strandline.subscriptions import servicer

MOMENT_S = ATTEMPT_MS / 1000 / 2
"""Longer than it takes to go elsewhere, and shorter than one attempt at an address that does not answer."""


class _Hangs(grpc.GenericRpcHandler):
    """Takes every call, and answers none."""

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._wait)

    async def _wait(self, requests: Any, context: Any) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def hung_address() -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Hangs(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_client_starts_beside_a_hung_address() -> None:
    """A bootstrap address that takes the subscription and sends nothing does not keep the client from the next."""
    async with (
        hung_address() as hung,
        served(image(1, topic("a"))) as alive,
        asyncio.timeout(3 * SILENCE_MS / 1000),
        client_of(hung, alive.address) as client,
    ):
        assert client.view.topic("a") is not None


async def test_a_subscription_that_falls_silent_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sent the state and then nothing, not even signs of life, is left for another one."""
    states = [image(1, topic("a"))]
    async with served(*states) as hung, served(*states) as alive, client_of(hung.address, alive.address) as client:
        monkeypatch.setattr(servicer, "SIGN_OF_LIFE_MS", 1_000_000)
        at_epoch(alive, 2)
        began_s = time.monotonic()
        await until(lambda: seen(client) == 2)
        moved_s = time.monotonic() - began_s

    assert SILENCE_MS > servicer.POSITION_MS
    assert moved_s < 2 * SILENCE_MS / 1000


async def test_patience_grows_while_every_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are all too slow are given twice as long in each round, so that a client starts at a cluster that is
    overloaded."""
    monkeypatch.setattr(metadata, "SILENCE_MS", 1)
    monkeypatch.setattr(metadata, "_MOST_PATIENCE", 1 << 14)
    async with served(image(1, topic("a"))) as slow:
        client = Cluster(slow.address, timeout_ms=60_000)
        try:
            await client.start()
        finally:
            await client.close()


async def test_clients_of_one_list_begin_at_different_addresses() -> None:
    """Each client draws an order of its own, so that not all of them are at the server that hangs."""
    addresses = [f"127.0.0.1:{port}" for port in range(1, 9)]
    first = {Cluster(addresses).source for _ in range(40)}

    assert len(first) > 1


async def test_a_commit_goes_to_the_next_coordinator() -> None:
    """A commit that waits at a hung coordinator goes to the one that metadata names, as soon as it names it."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, group="g", auto_commit=False) as consumer:
        cluster.groups.has_topic = True
        cluster.announce()
        await consumer.assign(TOPIC)
        await consumer.commit({(TOPIC, 0): 1})
        cluster.nodes[0].hangs = True
        commit = asyncio.create_task(consumer.commit({(TOPIC, 0): 2}))
        await until(lambda: cluster.nodes[0].hung_calls > 0)
        cluster.groups.coordinator, cluster.groups.epoch = 1, 2
        cluster.announce()
        async with asyncio.timeout(MOMENT_S):
            await commit

    assert cluster.groups.committed["g"] == {(TOPIC, 0): 2}


async def test_a_coordinator_is_looked_up_at_another_node() -> None:
    """A node that hangs when it is asked where a coordinator is delays the question by a second at most."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, group="g", auto_commit=False) as consumer:
        cluster.nodes[0].hangs, cluster.groups.coordinator = True, 1
        async with asyncio.timeout(MOMENT_S):
            found = await consumer.committed((TOPIC, 0))

    assert found == {(TOPIC, 0): None}


@pytest.mark.parametrize("read_from", ["leader", "follower"])
async def test_a_place_is_looked_for_at_the_next_leader(read_from: Literal["leader", "follower"]) -> None:
    """A question for an offset that waits at a hung leader goes to the one that metadata names, as soon as it does."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, read_from=read_from) as consumer:
        cluster.nodes[0].hangs = True
        await consumer.assign(TOPIC, start="end")
        await until(lambda: cluster.nodes[0].hung_calls > 0)
        cluster.move_leader(1)
        async with asyncio.timeout(MOMENT_S):
            await until(lambda: consumer.position(TOPIC, 0) is not None)


async def test_a_follower_that_left_the_isr_is_not_waited_for() -> None:
    """A consumer that reads at a hung follower goes elsewhere when metadata takes that out of the ISR, though the
    leader stays the same."""
    async with (
        fake_cluster(nodes=2) as cluster,
        Consumer(cluster.bootstrap, read_from="follower", rack="r") as consumer,
    ):
        cluster.racks = {0: "r", 1: "r"}
        write(cluster, b"one")
        cluster.nodes[1].hangs = True
        await consumer.assign(TOPIC, start=0)
        await until(lambda: cluster.nodes[1].hung_calls > 0)
        cluster.out_of_sync = {1}
        cluster.announce()
        async with asyncio.timeout(MOMENT_S):
            records = await consumer.poll()

    assert [record.value for record in records] == [b"one"]


async def test_records_are_deleted_at_the_next_leader() -> None:
    """A deletion that waits at a hung leader is asked of the one that metadata names, as soon as it does."""
    async with fake_cluster(nodes=2) as cluster, Admin(cluster.bootstrap, timeout_ms=60_000) as admin:
        cluster.nodes[0].hangs = True
        deletion = asyncio.create_task(admin.delete_records(TOPIC, {0: -1}))
        await until(lambda: cluster.nodes[0].hung_calls > 0)
        cluster.move_leader(1)
        async with asyncio.timeout(MOMENT_S):
            deleted = await deletion

    assert deleted[0].refusal is None


async def test_a_new_producer_gets_its_id_elsewhere() -> None:
    """A process that hangs when it is asked for a producer id is asked for a moment only; then a controller is."""
    async with fake_cluster() as cluster, Producer(cluster.bootstrap) as producer:
        client = producer._cluster
        cluster.nodes[0].hangs, client._source = True, cluster.nodes[0].endpoint
        async with asyncio.timeout(MOMENT_S):
            answer = await client.init_producer_id()

    assert answer.producer_id >= 0


async def test_a_controller_that_did_not_answer_is_asked_last() -> None:
    """After a question that a hung controller did not answer, the next question goes to another one."""
    async with hung_address() as hung, fake_cluster() as cluster, Admin(cluster.bootstrap, timeout_ms=300) as admin:
        controllers = admin._cluster.controllers
        controllers.met(parse_endpoint(hung))
        with pytest.raises(ClusterUnreachable):
            await admin.list_nodes()

        assert len(await admin.list_nodes()) == 1
