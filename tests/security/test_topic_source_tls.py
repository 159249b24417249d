"""The Spark data source reads a topic of a cluster with TLS as a client, and names the wrong option."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from certificates import settings_of
from secured_cluster import secured_cluster

from strandline.client import Producer
from strandline.rpc.channels import target
from strandline_analytics.topic.cluster import ask
from strandline_analytics.topic.errors import TopicReadFailed
from strandline_analytics.topic.loop import close
from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.ranges import OffsetRange
from strandline_analytics.topic.reading import read_range

T = TypeVar("T")


async def in_a_thread(work: Callable[[], T]) -> T:
    """The result of ``work`` in a thread with its own loop, which is closed before the thread ends."""
    with ThreadPoolExecutor(1) as thread:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        finally:
            await asyncio.get_running_loop().run_in_executor(thread, close)


async def test_a_topic_is_read_as_a_client(tmp_path: Path) -> None:
    """Its extent and its records are read with the paths in tlsCert, tlsKey and tlsCa."""
    async with secured_cluster(tmp_path, (1,)) as cluster:
        await cluster.admin.create_topic("t", partitions=1, replication_factor=1)
        files = cluster.made.files("client/spark")
        bootstrap = target(cluster.for_clients)
        async with Producer(bootstrap, **settings_of(files)) as producer:
            for value in (b"a", b"b"):
                await (await producer.send("t", value))
        given = {
            "bootstrap": bootstrap,
            "topic": "t",
            "tlsCert": str(files.cert),
            "tlsKey": str(files.key),
            "tlsCa": str(files.ca),
        }
        options = read_options(given, streaming=False)

        extent = (await in_a_thread(lambda: ask(options))).partitions[0]
        wanted = OffsetRange(partition=0, start=extent.start, end=extent.end)
        batches = await in_a_thread(lambda: list(read_range(options, wanted)))

        with pytest.raises(TopicReadFailed, match="option tlsCert: tls_key and tls_ca must be given too"):
            await in_a_thread(lambda: ask(read_options({**given, "tlsKey": "", "tlsCa": ""}, streaming=False)))

    assert (extent.start, extent.end) == (0, 2)
    assert [value for batch in batches for value in batch.to_pydict()["value"]] == [b"a", b"b"]
