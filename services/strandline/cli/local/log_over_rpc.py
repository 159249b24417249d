"""Compares the replicas of a running cluster: each is read as a consumer reads it, up to the lowest HW.

Invariant: the range is fixed before anything is read, so that a cluster under load is compared as it was at
that moment, up to a HW that every replica knew then; a replica that cannot be read is a failure, never a copy left out.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from strandline.cli.connect import tls_options
from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed
from strandline.cli.local.log_equality import Copy, Equality, Fingerprint, bounds, compare
from strandline.cli.options import addresses
from strandline.client.cluster.metadata import Cluster
from strandline.core.errors import RULES, Refused
from strandline.records.batch import split_batches
from strandline.rpc.channels import call
from strandline.rpc.convert.errors import read_error
from strandline.v1 import follower_service_pb2, leader_service_pb2, partition_pb2
from strandline.v1.follower_service_pb2_grpc import FollowerServiceStub
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

if TYPE_CHECKING:
    from strandline.core.messages import MetadataImage, PartitionImage, TopicImage
    from strandline.core.types import NodeId
    from strandline.v1.follower_service_pb2_grpc import FollowerServiceAsyncStub
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub

_DEADLINE_MS = 10_000
_SETTLE_S = 2.0
"""Several times the longest wait of a replica's fetch."""
_LOOK_AGAIN_S = 0.05
_FETCH_BYTES = 1 << 20
_ANY_SIZE = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of one partition, and how to ask the node that holds it."""

    node_id: NodeId
    leads: bool
    topic: TopicImage
    partition: int
    channel: grpc.aio.Channel

    @property
    def name(self) -> str:
        """As results name it."""
        return f"node {self.node_id}"

    def follower(self) -> FollowerServiceAsyncStub:
        """What every replica serves."""
        return FollowerServiceStub(self.channel)

    def leader(self) -> LeaderServiceAsyncStub:
        """What a leader serves."""
        return LeaderServiceStub(self.channel)


async def verify_cluster(bootstrap: str, topic: str | None = None) -> list[Equality]:
    """Compares all replicas of every partition (of one topic, or of all).

    Raises:
        CommandFailed: when there is no such topic, or a replica does not answer.
    """
    cluster = Cluster(addresses(bootstrap), **tls_options())
    await cluster.start()
    try:
        image = await cluster.fetch_image()
        topics = sorted((found for found in image.topics if topic in (None, found.name)), key=lambda found: found.name)
        if topic is not None and not topics:
            raise CommandFailed(f"UNKNOWN_TOPIC_OR_PARTITION: no topic is named {topic!r}; see `strandline topic list`")
        return [await _compare(cluster, image, found, partition) for found in topics for partition in found.partitions]
    finally:
        await cluster.close()


async def copies_of(cluster: Cluster, topic: str) -> list[list[Copy]]:
    """For each partition of a topic its replicas' bounds, as they are now.

    Raises:
        CommandFailed, Refused: a replica does not answer.
    """
    image = await cluster.fetch_image()
    found = await cluster.topic(topic)
    return [
        [await _bounds_of(replica) for replica in _replicas(cluster, image, found, partition)]
        for partition in found.partitions
    ]


def _replicas(cluster: Cluster, image: MetadataImage, topic: TopicImage, partition: PartitionImage) -> list[Replica]:
    holders = (*partition.replicas, *partition.observers)
    return [_replica(cluster, image, topic, partition, node_id) for node_id in holders]


async def _compare(cluster: Cluster, image: MetadataImage, topic: TopicImage, partition: PartitionImage) -> Equality:
    replicas = _replicas(cluster, image, topic, partition)
    copies = await _settled_copies(replicas)
    start, end = bounds(copies)
    batches = {replica.name: await _fingerprints(replica, start, end) for replica in replicas}
    return compare(topic.name, partition.tp.partition, copies, batches)


def _replica(
    cluster: Cluster, image: MetadataImage, topic: TopicImage, partition: PartitionImage, node_id: NodeId
) -> Replica:
    node = next((node for node in image.nodes if node.node_id == node_id), None)
    if node is None or node.client_endpoint is None or node.fenced:
        raise CommandFailed(
            f"node {node_id} holds {topic.name}-{partition.tp.partition} and is not serving; start it, or compare "
            "its data directory with `strandline log verify DIR DIR`",
            EXIT_UNREACHABLE,
        )
    return Replica(
        node_id=node_id,
        leads=partition.leader == node_id,
        topic=topic,
        partition=partition.tp.partition,
        channel=cluster.channels.to(node.client_endpoint),
    )


async def _settled_copies(replicas: list[Replica]) -> list[Copy]:
    """The replicas' bounds, once all know the HW that one of them knew first, or as they are after a while.

    A follower learns the HW with its next fetch, so that right after a produce it still knows an older one.
    """
    copies = [await _bounds_of(replica) for replica in replicas]
    wanted = max(copy.high_watermark for copy in copies)
    deadline_s = time.monotonic() + _SETTLE_S
    while min(copy.high_watermark for copy in copies) < wanted and time.monotonic() < deadline_s:
        await asyncio.sleep(_LOOK_AGAIN_S)
        copies = [await _bounds_of(replica) for replica in replicas]
    return copies


async def _bounds_of(replica: Replica) -> Copy:
    asked = partition_pb2.TopicPartitions(topic_id=replica.topic.topic_id, partitions=[replica.partition])
    request = follower_service_pb2.DescribeReplicasRequest(topics=[asked])
    answer = await call(replica.follower().DescribeReplicas, request, deadline_ms=_DEADLINE_MS)
    row = answer.topics[0].partitions[0]
    if (refusal := read_error(row)) is not None:
        raise Refused(refusal.code, f"{replica.name}: {refusal.message or RULES[refusal.code].remedy}")
    return Copy(
        name=replica.name,
        log_start_offset=row.log_start_offset,
        high_watermark=row.high_watermark,
        leo=row.log_end_offset,
    )


async def _fingerprints(replica: Replica, start: int, end: int) -> list[Fingerprint]:
    """Every batch of a replica between two offsets."""
    found: list[Fingerprint] = []
    position = start
    while position < end:
        payload = await _fetch(replica, position)
        batches = split_batches(payload, _ANY_SIZE)
        if not batches:
            return found
        for header, view in batches:
            digest = hashlib.blake2b(view, digest_size=16).digest()
            found.append(
                Fingerprint(header.base_offset, header.next_offset, header.stamped_epoch, header.size_bytes, digest)
            )
        position = batches[-1].header.next_offset
    return found


async def _fetch(replica: Replica, offset: int) -> bytes:
    """The bytes that a replica gives at ``offset``: whole batches.

    Raises:
        Refused: when it gives none.
    """
    wanted = partition_pb2.FetchPartition(
        partition=replica.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
    )
    topics = [partition_pb2.FetchTopic(topic_id=replica.topic.topic_id, partitions=[wanted])]
    answer: leader_service_pb2.FetchResponse | follower_service_pb2.FollowerServiceFetchResponse
    if replica.leads:
        question = leader_service_pb2.FetchRequest(topics=topics)
        answer = await call(replica.leader().Fetch, question, deadline_ms=_DEADLINE_MS)
    else:
        to_follower = follower_service_pb2.FollowerServiceFetchRequest(topics=topics)
        answer = await call(replica.follower().Fetch, to_follower, deadline_ms=_DEADLINE_MS)
    if (refusal := read_error(answer)) is not None:
        raise Refused(refusal.code, f"{replica.name}: {refusal.message}")
    row = answer.responses[0].partitions[0]
    if (refusal := read_error(row)) is not None:
        raise Refused(refusal.code, f"{replica.name}: {refusal.message}")
    return row.records
