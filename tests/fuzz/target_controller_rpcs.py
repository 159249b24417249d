"""Target 5, second half: a live controller is called with anything its contract allows, and some things it does not.

Invariant: documented answers only (`drawn_calls`); after each call no epoch has gone back (I14), the leader is in the
ISR and that among the replicas (I7), and at the end a controller started on the same store finds the same state.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from drawn_calls import call_anything
from draws import Draws
from running_controller import controller, create, join, stub_of

from strandline.controller.process import ControllerProcess
from strandline.core.control.state import ClusterState
from strandline.core.errors import ErrorCode
from strandline.metadata.sqlite import SqliteStore
from strandline.rpc.channels import open_channel
from strandline.v1 import controller_service_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"]
CALLS = 16


def words(state: ClusterState) -> dict[str, Any]:
    """Values that are meaningful for this controller."""
    topic_ids = (*state.topics, "missing", "")
    epochs = [record.image.node_epoch for record in state.nodes.values()]
    names = [topic.name for topic in state.topics.values()]
    return {
        "cluster_id": (state.header.cluster_id,) * 3 + ("other", ""),
        "topic": (*names, "missing"),
        "name": (*names, "new", "min.insync.replicas", "retention.ms", "missing", "a" * 249),
        "topic_id": topic_ids,
        "value": ("1", "2", "-1", "true", "false", "9" * 19, "x"),
        "configs": ("min.insync.replicas", "retention.ms", "unclean.leader.election.enable", "segment.bytes", "x"),
        "node_id": (1, 2, 3, 9, 0, -1),
        "node_ids": (1, 2, 3, 9, 0, -1),
        "broker_id": (1, 2, 3),
        "node_epoch": (*epochs, 0, -1),
        "isr": (1, 2, 3, 9),
        "replicas": (1, 2, 3, 9, -1),
        "controller_epoch": (state.header.controller_epoch,) * 3 + (0, 99),
        "request_sequence": (1, 2, 3, 0, -1),
        "leader_epoch": (0, 1, 2, -1),
        "partition_epoch": (0, 1, 2, 3, -1),
        "partition_index": (0, 1, 7, -1),
        "partitions": (0, 1, 7, -1),
        "partition": (0, 1, 7, -1),
        "num_partitions": (1, 2, 0, -1, 5),
        "count": (2, 3, 1, 0, -1),
        "replication_factor": (1, 2, 3, 0, -1),
        "host": ("127.0.0.1",),
        "port": (1, 0, 65_535),
        "incarnation_id": ("incarnation-1", "incarnation-2", "fresh", ""),
        "directory_id": ("directory-1", "directory-2", "fresh", ""),
        "min_level": (1, 0, 2),
        "max_level": (1, 2, 0),
    }


def check(data: bytes) -> None:
    """The oracle: a fresh controller for each input, so that an input that failed once fails again."""
    asyncio.run(_check(Draws(data)))


async def _check(draws: Draws) -> None:
    with TemporaryDirectory() as directory:
        async with controller(Path(directory), session_timeout_ms=60_000) as process, stub_of(process) as stub:
            for node_id in (1, 2, 3):
                await join(stub, node_id)
            await create(stub, "t", "u", factor=3)
            await _abuse(draws, process)
            await _still_serves(process, stub)
            state = process.driver.core.state
        store = SqliteStore(Path(directory))
        assert await store.open() == state, "the store holds another state than the controller reported"
        await store.close()


async def _still_serves(process: ControllerProcess, stub: Any) -> None:
    """It creates a topic: no claim without a proof, and none is drawn with one, stops it for others (M72)."""
    assert process.driver.core.serves
    made = await create(stub, "last", factor=1)
    assert made.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS, *_NO_NODE), made


_NO_NODE = (ErrorCode.INVALID_REPLICATION_FACTOR,)
"""Drawn calls may have shut all nodes down."""


async def _abuse(draws: Draws, process: ControllerProcess) -> None:
    assert process.endpoint is not None
    before = process.driver.core.state
    async with open_channel(process.endpoint) as channel:
        for _ in range(CALLS):
            await call_anything(draws, channel, SERVICE, words(before))
            after = process.driver.core.state
            check_epochs(before, after)
            before = after
            if draws.is_over:
                break


def check_epochs(before: ClusterState, after: ClusterState) -> None:
    """I7 and I14 between two states."""
    assert after.header.controller_epoch >= before.header.controller_epoch
    assert after.header.metadata_offset >= before.header.metadata_offset
    for node_id, record in before.nodes.items():
        assert after.nodes[node_id].image.node_epoch >= record.image.node_epoch, f"node epoch of {node_id} went back"
    for partition in after.partitions():
        assert set(partition.isr) <= set(partition.replicas), partition
        assert partition.leader is None or partition.leader in partition.isr, partition
        old = before.partition(partition.tp)
        if old is not None:
            assert partition.leader_epoch >= old.leader_epoch, f"{old} became {partition}"
            assert partition.partition_epoch >= old.partition_epoch, f"{old} became {partition}"
            assert partition == old or partition.partition_epoch > old.partition_epoch, f"{old} became {partition}"
