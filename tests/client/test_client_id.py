"""Whose call it is: every call of a client begins its user agent with the client's name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster

from strandline.client import Admin, Consumer, Producer


async def test_every_call_says_whose_it_is() -> None:
    """Streams and single calls to controllers, leaders and followers have the name as the first word."""
    async with (
        fake_cluster(nodes=2) as cluster,
        Producer(cluster.bootstrap, client_id="shop") as producer,
        Consumer(cluster.bootstrap, client_id="shop") as consumer,
        Consumer(cluster.bootstrap, client_id="shop", read_from="follower") as follower,
        Admin(cluster.bootstrap, client_id="shop") as admin,
    ):
        await producer.send_and_wait(TOPIC, b"x")
        for reader in (consumer, follower):
            await reader.assign(TOPIC)
            await reader.poll(5_000)
        await admin.list_nodes()
        await admin.list_offsets(TOPIC)
        await admin.describe_partitions()
        await admin.describe_replicas()
        agents = cluster.user_agents

    called = {"WatchMetadata", "InitProducerId", "ProduceStream", "ListOffsets", "FetchStream", "Fetch", "ListNodes"}
    assert called | {"DescribePartitions", "DescribeReplicas"} <= agents.keys()
    assert {agent.split()[0] for found in agents.values() for agent in found} == {"shop"}


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
@pytest.mark.parametrize("name", ["", "two words", "x" * 250, "line\n"])
def test_a_name_is_one_word(kind: type[Any], name: str) -> None:
    """Anything else is rejected, because it would not arrive as it was given."""
    with pytest.raises(ValueError, match=r"client_id .* must be 1 to 249"):
        kind("127.0.0.1:1", client_id=name)
