"""The error of a Spark task when its topic is deleted while it reads."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster, until

from strandline_analytics.topic.errors import TopicFailed
from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.ranges import OffsetRange
from strandline_analytics.topic.reading import read_range


async def test_a_topic_deleted_under_a_task_is_named() -> None:
    """A task that waits for records of a topic that is deleted fails at once and names the option and the topic."""
    async with fake_cluster() as cluster:
        given = {"bootstrap": cluster.bootstrap, "topic": TOPIC, "fetchTimeoutMs": "60000"}
        task = asyncio.create_task(
            asyncio.to_thread(list, read_range(read_options(given, streaming=False), OffsetRange(TOPIC, 0, 0, 5)))
        )
        await until(lambda: bool(cluster.nodes[0].fetched))
        cluster.delete_topic()
        with pytest.raises(TopicFailed, match=f"option topic: .*'{TOPIC}' was deleted"):
            async with asyncio.timeout(10):
                await task
