"""Builds real data nodes inside the test's own process, against a stub of a controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from controller_stub import ControllerStub
from scripted_core import end

from strandline.core.types import NodeId
from strandline.node.node import ReplicaNode
from strandline.node.settings import ReplicaSettings
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.channels import open_channel, target
from strandline.storage.directory import DataDirectory
from strandline.v1 import (
    follower_service_pb2_grpc,
    leader_service_pb2 as pb,
    leader_service_pb2_grpc as pb_grpc,
    partition_pb2,
)

TOPIC, TOPIC_ID = "orders", "0b6c1c2e-6a52-4d4c-9d0e-5f5a3c1d7e10"


def build_node(controller: ControllerStub, directory: Path, node_id: int = 1, **settings: Any) -> ReplicaNode:
    """A node that is not started."""
    chosen = ReplicaSettings(
        node_id=node_id, data_dir=directory, controllers=(target(controller.endpoint),), tick_ms=10, **settings
    )
    opened = DataDirectory.open(
        directory, node_id=NodeId(node_id), durability=chosen.durability, low_space_bytes=chosen.low_space_bytes
    )
    return ReplicaNode(chosen, opened, stop=end)


@asynccontextmanager
async def running_nodes(
    controller: ControllerStub, directory: Path, node_ids: Sequence[int] = (1,), **settings: Any
) -> AsyncIterator[list[ReplicaNode]]:
    """Nodes that serve and know their partitions; shut down cleanly at the end."""
    async with AsyncExitStack() as stack:
        if not controller.endpoint.port:
            await controller.start()
            stack.push_async_callback(controller.stop)
        nodes = []
        controller.heartbeats = [beat for beat in controller.heartbeats if beat.node_id not in node_ids]
        for node_id in node_ids:
            node = build_node(controller, directory / f"node-{node_id}", node_id, **settings)
            await node.start()
            stack.push_async_callback(node.shut_down)
            nodes.append(node)
        await asyncio.wait_for(controller.known_by(*node_ids), 10)
        yield nodes


@asynccontextmanager
async def leader_stub(node: ReplicaNode) -> AsyncIterator[Any]:
    """LeaderService of a node, as clients reach it."""
    assert node.client is not None
    async with open_channel(node.client) as channel:
        yield pb_grpc.LeaderServiceStub(channel)


@asynccontextmanager
async def follower_stub(node: ReplicaNode) -> AsyncIterator[Any]:
    """FollowerService of a node, as clients reach it."""
    assert node.client is not None
    async with open_channel(node.client) as channel:
        yield follower_service_pb2_grpc.FollowerServiceStub(channel)


def batch(*values: str, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """One batch of records without keys, a millisecond apart."""
    return encode_batch(NewRecord(None, value.encode(), timestamp_ms + i) for i, value in enumerate(values))


def produce(records: bytes, *, partition: int = 0, name: str = TOPIC, **fields: Any) -> pb.ProduceRequest:
    """A unary produce of one batch."""
    return pb.ProduceRequest(topic_data=[_topic(records, partition, name)], **fields)


def produce_message(correlation_id: int, records: bytes, *, partition: int = 0, **fields: Any) -> Any:
    """A ProduceStream message of one batch."""
    topic = _topic(records, partition, TOPIC)
    return pb.ProduceStreamRequest(correlation_id=correlation_id, topic_data=[topic], **fields)


def _topic(records: bytes, partition: int, name: str) -> pb.ProduceTopic:
    part = pb.ProducePartition(index=partition, records=records)
    return pb.ProduceTopic(name=name, partition_data=[part])


def fetch(offset: int, *, partition: int = 0, **fields: Any) -> pb.FetchRequest:
    """A consumer's unary fetch, records as messages."""
    return pb.FetchRequest(topics=[fetch_topic(offset, partition=partition)], decode=True, **fields)


def fetch_topic(offset: int, *, partition: int = 0) -> partition_pb2.FetchTopic:
    """One partition of a fetch."""
    part = partition_pb2.FetchPartition(partition=partition, fetch_offset=offset)
    return partition_pb2.FetchTopic(topic=TOPIC, partitions=[part])


def values_of(response: Any) -> list[str]:
    """The values in a fetch answer with decoded records, in order."""
    return [
        record.value.decode()
        for topic in response.responses
        for partition in topic.partitions
        for record in partition.simple_records
    ]
