"""When the record at an offset was written: asked of its leader by a small fetch of its own.

Invariant: a partition is left out rather than guessed: when its leader does not answer, when there is no record at or
after the offset, or when that cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strandline.client.connecting import countdown
from strandline.client.cursor import Wanted
from strandline.client.errors import ClusterUnreachable
from strandline.client.fetch_link import fetch_topics
from strandline.client.metadata import Cluster
from strandline.core.errors import Refused
from strandline.core.types import Offset, TopicPartition
from strandline.records.batch import split_batches
from strandline.records.codec import iterate_batch
from strandline.rpc.convert_errors import read_error
from strandline.v1 import leader_service_pb2, partition_pb2
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub

_ATTEMPT_MS = 5_000
_ANY_SIZE = 1 << 31
_AT_ONCE = 16
"""Fetches under way: each brings a whole batch, up to 1 MiB."""


class RecordTimes:
    """Asks leaders."""

    def __init__(self, cluster: Cluster, isolation_level: partition_pb2.IsolationLevel.ValueType) -> None:
        self._cluster = cluster
        self._isolation_level = isolation_level

    async def find(self, places: Mapping[TopicPartition, Offset], *, deadline_ms: int) -> dict[TopicPartition, int]:
        """The timestamp of the first record at or after each offset, in ms since 1970."""
        gate = asyncio.Semaphore(_AT_ONCE)
        left = countdown(deadline_ms)

        async def ask(tp: TopicPartition, offset: Offset) -> int | None:
            async with gate:
                return await self._ask(tp, offset, min(_ATTEMPT_MS, left()))

        times = await asyncio.gather(*(ask(tp, offset) for tp, offset in places.items()))
        return {tp: time_ms for tp, time_ms in zip(places, times, strict=True) if time_ms is not None}

    async def _ask(self, tp: TopicPartition, offset: Offset, deadline_ms: int) -> int | None:
        leader = self._cluster.view.leader_of(tp)
        if leader is None:
            return None
        stub: LeaderServiceAsyncStub = LeaderServiceStub(self._cluster.channels.to(leader.endpoint))
        request = leader_service_pb2.FetchRequest(
            cluster_id=self._cluster.cluster_id,
            # Of one partition the first batch comes whole, however large it is; of several only that of the first.
            max_bytes=1,
            isolation_level=self._isolation_level,
            topics=fetch_topics([Wanted(tp, offset, None, leader.epoch)], 1),
        )
        try:
            answer = await self._cluster.ask(stub.Fetch, request, deadline_ms=deadline_ms)
        except (ClusterUnreachable, Refused):
            return None
        rows = [row for topic in answer.responses for row in topic.partitions]
        return next((time_at(row.records, offset) for row in rows if read_error(row) is None), None)


def time_at(payload: bytes, offset: Offset) -> int | None:
    """The timestamp of the first record at or after an offset; None if there is none that can be read."""
    try:
        for header, view in split_batches(payload, _ANY_SIZE) if payload else ():
            if header.next_offset > offset:
                return next((one.timestamp_ms for one in iterate_batch(view) if one.offset >= offset), None)
    except Refused:
        return None
    return None
