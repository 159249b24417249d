"""Three brokers on loopback, two partitions, for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from fake_kafka import FakeCluster, Part


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    """Brokers 1, 2 and 3 with two partitions of `orders`, led by 1 and 2."""
    cluster = FakeCluster()
    cluster.parts["orders", 0] = Part(1, 4, [1, 2, 3], [1, 2, 3], 90, {1: 100, 2: 95, 3: 90}, start=10)
    cluster.parts["orders", 1] = Part(2, 7, [2, 3, 1], [2, 3], 50, {1: 20, 2: 50, 3: 50})
    servers = []
    for node in (1, 2, 3):
        server = await asyncio.start_server(
            lambda reader, writer, node=node: cluster.serve(node, reader, writer), "127.0.0.1", 0
        )
        cluster.speaking[node] = asyncio.Event()
        cluster.speaking[node].set()
        cluster.brokers[node] = server.sockets[0].getsockname()[1]
        servers.append(server)
    yield cluster
    for server in servers:
        server.close()
    for task in cluster.tasks:
        task.cancel()
    if cluster.tasks:
        await asyncio.wait(cluster.tasks, timeout=5)
