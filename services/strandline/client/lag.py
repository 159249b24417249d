"""How far behind a consumer is: in records by its leaders' high watermarks, in seconds by the next record's timestamp.

Invariant: a partition is left out rather than guessed: when its position is not found yet, or its leader does not
answer. Nothing that is measured moves a position or takes from the buffer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from strandline.client.cursor import Cursor, Wanted
from strandline.client.errors import ClusterUnreachable
from strandline.client.fetch_link import fetch_topics
from strandline.client.metadata import Cluster
from strandline.client.offsets import LATEST, OffsetFinder
from strandline.client.view import Leader
from strandline.core.errors import Refused
from strandline.core.types import LeaderEpoch, Offset, TopicPartition
from strandline.records.batch import split_batches
from strandline.records.codec import iterate_batch
from strandline.v1 import leader_service_pb2, partition_pb2
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub

_ATTEMPT_MS = 5_000
_ANY_SIZE = 1 << 31


class Lag(NamedTuple):
    """How far a consumer is behind what it may read of one partition."""

    records: int
    """Records between its position and the high watermark."""
    seconds: float | None
    """Age of the first record that was not given, by its timestamp and this machine's clock; 0 without one; None if
    its leader does not answer or it has no timestamp."""


class LagMeter:
    """Measures one consumer."""

    def __init__(self, cluster: Cluster, isolation_level: partition_pb2.IsolationLevel.ValueType) -> None:
        self._cluster = cluster
        self._isolation_level = isolation_level
        self._finder = OffsetFinder(cluster)

    async def measure(self, cursors: Iterable[Cursor]) -> dict[TopicPartition, Lag]:
        """The lag of each partition whose position and end can be had now.

        Raises:
            Refused: a partition's refusal that cannot be helped.
        """
        placed = {cursor.tp: cursor for cursor in cursors if cursor.position is not None}
        ends = await self._finder.find_some(dict.fromkeys(placed, LATEST))
        behind = {}
        for tp, cursor in placed.items():
            end = ends[tp].offset if tp in ends else None
            if end is not None and cursor.position is not None:
                behind[tp] = max(0, end - cursor.position)
        times = await self._times({tp: placed[tp] for tp, records in behind.items() if records})
        now_ms = time.time() * 1000
        found: dict[TopicPartition, Lag] = {}
        for tp, records in behind.items():
            time_ms = times.get(tp)
            seconds = None if time_ms is None else max(0.0, (now_ms - time_ms) / 1000)
            found[tp] = Lag(records, seconds if records else 0.0)
        return found

    async def _times(self, cursors: Mapping[TopicPartition, Cursor]) -> dict[TopicPartition, int]:
        """When the next record of each was written, from the buffer, or from its leader."""
        found: dict[TopicPartition, int] = {}
        asked: dict[Leader, list[Wanted]] = {}
        for tp, cursor in cursors.items():
            buffered = _buffered_time(cursor)
            if buffered is not None:
                found[tp] = buffered
                continue
            leader = self._cluster.view.leader_of(tp)
            if leader is not None and cursor.position is not None:
                wanted = Wanted(tp, cursor.position, None, leader.epoch)
                asked.setdefault(leader._replace(epoch=LeaderEpoch(0)), []).append(wanted)
        await asyncio.gather(*(self._ask(leader, wanted, found) for leader, wanted in asked.items()))
        return found

    async def _ask(self, leader: Leader, wanted: list[Wanted], found: dict[TopicPartition, int]) -> None:
        stub: LeaderServiceAsyncStub = LeaderServiceStub(self._cluster.channels.to(leader.endpoint))
        request = leader_service_pb2.FetchRequest(
            cluster_id=self._cluster.cluster_id,
            max_bytes=1,
            isolation_level=self._isolation_level,
            # The first batch comes whole, however large it is.
            topics=fetch_topics(wanted, 1),
        )
        starts = {one.tp: one.offset for one in wanted}
        try:
            answer = await self._cluster.ask(stub.Fetch, request, deadline_ms=_ATTEMPT_MS)
        except (ClusterUnreachable, Refused):
            return
        for topic in answer.responses:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic_id, row.partition_index)
                time_ms = _time_at(row.records, starts[tp]) if row.records else None
                if time_ms is not None:
                    found[tp] = time_ms


def _buffered_time(cursor: Cursor) -> int | None:
    if cursor.unpacked:
        return cursor.unpacked[0].timestamp_ms
    if cursor.chunks and cursor.position is not None:
        return _time_at(cursor.chunks[0].payload, cursor.position)
    return None


def _time_at(payload: bytes, offset: Offset) -> int | None:
    """The timestamp of the first record at or after an offset; None if there is none that can be read."""
    try:
        for header, view in split_batches(payload, _ANY_SIZE):
            if header.next_offset > offset:
                return next((one.timestamp_ms for one in iterate_batch(view) if one.offset >= offset), None)
    except Refused:
        return None
    return None
