"""Target 5, first half: a live data node is called with anything its contract allows, and some things it does not.

Invariant: documented answers only (`drawn_calls`); afterwards every log is valid (I0), no high watermark went back, and
the node still serves.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from controller_stub import CLUSTER_ID, ControllerStub, topic
from drawn_calls import call_anything
from draws import Draws
from nodes_in_process import TOPIC, TOPIC_ID, batch, fetch, leader_stub, produce, running_nodes

from strandline.node.node import ReplicaNode
from strandline.records.batch import stamp
from strandline.rpc.channels import open_channel
from strandline.v1 import follower_service_pb2, leader_service_pb2

SERVICES = (
    leader_service_pb2.DESCRIPTOR.services_by_name["LeaderService"],
    follower_service_pb2.DESCRIPTOR.services_by_name["FollowerService"],
)
OTHER_ID = "22222222-0000-4000-8000-000000000002"
FOLLOWED_ID = "33333333-0000-4000-8000-000000000003"
CALLS = 12


def _batches() -> tuple[bytes, ...]:
    idempotent = bytearray(batch("a", "b"))
    stamp(idempotent, 5, 7)
    damaged = bytearray(batch("c"))
    damaged[40] ^= 1
    return (batch("a"), bytes(idempotent), bytes(damaged), b"", batch("x" * 1_000), batch("a") * 2)


WORDS: dict[str, Any] = {
    "topic": (TOPIC, "single", "followed", "missing"),
    "name": (TOPIC, "single", "followed", "missing"),
    "topic_id": (TOPIC_ID, "", OTHER_ID, FOLLOWED_ID, "missing"),
    "cluster_id": (CLUSTER_ID, CLUSTER_ID, CLUSTER_ID, "other"),
    "index": (0, 1, 0, 7, -1),
    "partition": (0, 1, 0, 7, -1),
    "partition_index": (0, 1, 0, 7, -1),
    "partitions": (0, 1, 0, 7, -1),
    "records": _batches(),
    "acks": (-1, 1, 0, 2),
    "timeout_ms": (5, 0, 1, -1),
    "max_wait_ms": (0, 5, 20, -5),
    "min_bytes": (1, 0, 1 << 30, -1),
    "fetch_offset": (0, 1, 2, 3, 4, 100, -1),
    "replica_id": (2, 1, 9, -1),
    "replica_epoch": (102, 101, 0, -1),
    "current_leader_epoch": (0, 0, 1, -1),
    "last_fetched_epoch": (0, 0, 1, -1),
    "leader_epoch": (0, 1, -1),
    "log_start_offset": (0, 1, -1),
    "timestamp": (-1, -2, -3, -4, 0, 1_700_000_000_000, 1_800_000_000_000),
    "session_id": (0, 0, 0, 1),
}


def check(data: bytes) -> None:
    """The oracle: a fresh node for each input, so that an input that failed once fails again."""
    asyncio.run(_check(Draws(data)))


async def _check(draws: Draws) -> None:
    controller = ControllerStub(
        topic(TOPIC, TOPIC_ID, (1, 2), partitions=2, min_isr=1),
        topic("single", OTHER_ID, (1,)),
        topic("followed", FOLLOWED_ID, (2, 1)),
    )
    with TemporaryDirectory() as directory:
        async with running_nodes(controller, Path(directory), low_space_bytes=0, shutdown_deadline_ms=0) as (node,):
            await _abuse(draws, node)
            await _still_serves(node)


async def _abuse(draws: Draws, node: ReplicaNode) -> None:
    logs = node.driver.core.state.logs
    seen = {tp: log.hw for tp, log in logs.items()}
    async with open_channel(node.client) as channel:
        for _ in range(CALLS):
            await call_anything(draws, channel, draws.choice(SERVICES), WORDS)
            for tp, log in logs.items():
                log.assert_sane()
                assert log.hw >= seen[tp], f"the HW of {tp} went back"
                seen[tp] = log.hw
            if draws.is_over:
                break


async def _still_serves(node: ReplicaNode) -> None:
    async with leader_stub(node) as stub:
        answer = await stub.Produce(produce(batch("last"), name="single"), timeout=10)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
        request = fetch(answer.responses[0].partition_responses[0].base_offset)
        request.topics[0].topic = "single"
        assert len((await stub.Fetch(request, timeout=10)).responses[0].partitions[0].simple_records) == 1
