"""The Spark data source reads a topic of a cluster with TLS as a client, and names the wrong option."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path

import pytest
from certificates import settings_of
from secured_cluster import secured_cluster

from strandline.client import Producer, TopicPartition
from strandline.rpc.channels import target
from strandline_analytics.topic.cluster import ask
from strandline_analytics.topic.errors import TopicFailed
from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.pool import close_idle
from strandline_analytics.topic.ranges import OffsetRange
from strandline_analytics.topic.reading import read_range


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

        found = await to_thread(ask, options.connection, options.selection)
        extent = found.partitions[TopicPartition("t", 0)]
        wanted = OffsetRange(topic="t", partition=0, start=extent.start, end=extent.end)
        batches = await to_thread(lambda: list(read_range(options, wanted)))

        wrong = read_options({**given, "tlsKey": "", "tlsCa": ""}, streaming=False)
        with pytest.raises(TopicFailed, match="option tlsCert: tls_key and tls_ca must be given too"):
            await to_thread(ask, wrong.connection, wrong.selection)
        await to_thread(close_idle)

    assert (extent.start, extent.end) == (0, 2)
    assert [value for batch in batches for value in batch.to_pydict()["value"]] == [b"a", b"b"]
