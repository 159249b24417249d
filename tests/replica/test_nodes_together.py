"""Several data nodes over real FetchStreams: acknowledged records are on all, and a follower serves reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import (
    TOPIC,
    TOPIC_ID,
    batch,
    fetch,
    fetch_topic,
    follower_stub,
    leader_stub,
    produce,
    running_nodes,
    values_of,
)

from strandline.core.errors import ErrorCode
from strandline.core.types import TopicPartition
from strandline.v1 import follower_service_pb2

TP = TopicPartition(TOPIC_ID, 0)
THREE = (1, 2, 3)


def _controller() -> ControllerStub:
    return ControllerStub(topic(TOPIC, TOPIC_ID, THREE, min_isr=2))


def _leo(node: Any) -> int:
    view = node.driver.core.describe_replica(TP)
    return -1 if view is None else view.leo


async def _until_hw(node: Any, offset: int) -> None:
    async with asyncio.timeout(5):
        while node.driver.core.describe_replica(TP).high_watermark < offset:  # noqa: ASYNC110 - a look from outside
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
async def test_what_is_acknowledged_is_on_every_in_sync_replica(tmp_path: Path, durability: str) -> None:
    """When acks=all returns, all three logs hold the same bytes."""
    async with (
        running_nodes(_controller(), tmp_path, THREE, durability=durability) as nodes,
        leader_stub(nodes[0]) as stub,
    ):
        for index in range(20):
            answer = await stub.Produce(produce(batch(f"v{index}")), timeout=5)
            assert answer.responses[0].partition_responses[0].error_code == 0
        ends = [_leo(node) for node in nodes]
        files = [(tmp_path / f"node-{n}" / f"{TOPIC}-0" / f"{0:020}.log").read_bytes() for n in THREE]

    assert ends == [20, 20, 20]
    assert files[0] == files[1] == files[2]


async def test_a_consumer_reads_from_a_follower_up_to_its_own_hw(tmp_path: Path) -> None:
    """FollowerService serves what the follower knows as committed; its LeaderService rejects with a hint."""
    request = follower_service_pb2.FollowerServiceFetchRequest(topics=[fetch_topic(0)], decode=True, max_wait_ms=5_000)
    async with (
        running_nodes(_controller(), tmp_path, THREE) as nodes,
        leader_stub(nodes[0]) as leader,
        follower_stub(nodes[1]) as follower,
        leader_stub(nodes[1]) as wrong,
    ):
        await leader.Produce(produce(batch("a")), timeout=5)
        await _until_hw(nodes[1], 1)
        answer = await follower.Fetch(request, timeout=10)
        refused = (await wrong.Fetch(fetch(0), timeout=5)).responses[0].partitions[0]
        client = nodes[0].client

    assert values_of(answer) == ["a"]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_id == 1
    assert refused.current_leader.endpoint.port == client.port


async def test_followers_take_up_fetching_after_their_leaders_restart(tmp_path: Path) -> None:
    """A broken FetchStream is dialled again at the leader's new address, and replication goes on."""
    controller = _controller()
    await controller.start()
    async with running_nodes(controller, tmp_path, (2, 3)):
        async with running_nodes(controller, tmp_path, (1,)) as (first,), leader_stub(first) as stub:
            await stub.Produce(produce(batch("a")), timeout=10)
        async with running_nodes(controller, tmp_path, (1,)) as (again,), leader_stub(again) as stub:
            answer = await stub.Produce(produce(batch("b"), timeout_ms=10_000), timeout=15)
    await controller.stop()

    assert answer.responses[0].partition_responses[0].base_offset == 1
