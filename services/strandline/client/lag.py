"""How far behind a consumer is: in records by the end of what it may read, in seconds by the next record's timestamp.

Invariant: a partition is left out rather than guessed: when its position is not found yet, or its leader does not
answer. Nothing that is measured moves a position or takes from the buffer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from strandline.client.connecting import countdown
from strandline.client.cursor import Cursor
from strandline.client.metadata import Cluster
from strandline.client.offsets import ATTEMPT_MS, LATEST, OffsetFinder
from strandline.client.record_times import RecordTimes, time_at
from strandline.client.records_behind import records_behind
from strandline.core.types import Offset, TopicPartition
from strandline.v1 import partition_pb2


class Lag(NamedTuple):
    """How far a consumer is behind what it may read of one partition."""

    records: int
    """Offsets between its position and the end of what it may read: the last stable offset, or the high watermark."""
    seconds: float | None
    """Age of the first record that was not given, by its timestamp and this machine's clock; 0 without one; None if
    its leader does not answer or it has no timestamp."""


class LagMeter:
    """Measures one consumer."""

    def __init__(self, cluster: Cluster, isolation_level: partition_pb2.IsolationLevel.ValueType) -> None:
        self._record_times = RecordTimes(cluster, isolation_level)
        self._finder = OffsetFinder(
            cluster, read_committed=isolation_level == partition_pb2.ISOLATION_LEVEL_READ_COMMITTED
        )

    async def measure(self, cursors: Iterable[Cursor], *, deadline_ms: int) -> dict[TopicPartition, Lag]:
        """The lag of each partition whose position and end can be had now.

        Raises:
            Refused: a partition's refusal that cannot be helped.
        """
        placed = {cursor.tp: cursor for cursor in cursors if cursor.position is not None}
        left = countdown(deadline_ms)
        ends = await self._finder.find_some(dict.fromkeys(placed, LATEST), deadline_ms=min(ATTEMPT_MS, left()))
        behind = {}
        for tp, cursor in placed.items():
            end = ends[tp].offset if tp in ends else None
            records = records_behind(cursor.position, end, cursor.log_start_offset)
            if records is not None:
                behind[tp] = records
        times = await self._times({tp: placed[tp] for tp, records in behind.items() if records}, left())
        now_ms = time.time() * 1000
        found: dict[TopicPartition, Lag] = {}
        for tp, records in behind.items():
            time_ms = times.get(tp)
            seconds = None if time_ms is None else max(0.0, (now_ms - time_ms) / 1000)
            found[tp] = Lag(records, seconds if records else 0.0)
        return found

    async def _times(self, cursors: Mapping[TopicPartition, Cursor], deadline_ms: int) -> dict[TopicPartition, int]:
        """When the next record of each was written, from the buffer, or from its leader."""
        found: dict[TopicPartition, int] = {}
        asked: dict[TopicPartition, Offset] = {}
        for tp, cursor in cursors.items():
            buffered = _buffered_time(cursor)
            if buffered is not None:
                found[tp] = buffered
            elif cursor.position is not None:
                asked[tp] = cursor.position
        return found | await self._record_times.find(asked, deadline_ms=deadline_ms)


def _buffered_time(cursor: Cursor) -> int | None:
    if cursor.unpacked:
        return cursor.unpacked[0].timestamp_ms
    if cursor.chunks and cursor.position is not None:
        return time_at(cursor.chunks[0].payload, cursor.position)
    return None
