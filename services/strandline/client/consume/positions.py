"""Where a consumer begins in each partition, and where it stops with ``stop_at_end``.

Invariant: ends are asked for before beginnings, so what is written after the consumer began is not waited for;
a partition without a leader delays no other.
"""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from strandline.client.background import countdown
from strandline.client.cluster.metadata import Cluster
from strandline.client.consume.cursor import Cursor
from strandline.client.consume.fetch_link import RecordTimes, time_at
from strandline.client.consume.fetching import Fetching
from strandline.client.errors import NothingCommitted
from strandline.client.groups.group_commits import GroupCommits
from strandline.client.log import RetryLog, log, some_of
from strandline.client.offsets import ATTEMPT_MS, EARLIEST, LATEST, FoundOffset, OffsetFinder
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.types import Offset, TopicPartition
from strandline.rpc.channels import Backoff
from strandline.v1 import partition_pb2


class PositionFinder:
    """Finds what is looked for, as long as the consumer lives."""

    def __init__(
        self,
        finder: OffsetFinder,
        fetching: Fetching,
        *,
        stop_at_end: bool,
        lost: asyncio.Event,
        on_found: Callable[[], None],
        group: GroupCommits | None = None,
    ) -> None:
        """``lost`` is set whenever something has to be found; ``group`` knows what is committed."""
        self._group = group
        self._finder = finder
        self._fetching = fetching
        self._stop_at_end = stop_at_end
        self._lost = lost
        self._on_found = on_found

    async def run(self) -> None:
        """Find positions and ends whenever some are lost; again and again while a leader is missing."""
        backoff = Backoff()
        retry = RetryLog("finding positions")
        # What was cut off in the middle is looked for again.
        self._lost.set()
        while True:
            await self._lost.wait()
            self._lost.clear()
            is_complete = await self._find_or_fail()
            self._fetching.pump()
            self._on_found()
            if is_complete:
                backoff.reset()
                retry.worked()
                continue
            retry.failed(self._fetching.now_ms(), "some leaders have not answered")
            self._lost.set()
            await asyncio.sleep(backoff.next_s())

    async def _find_or_fail(self) -> bool:
        """One round; whether nothing is left to be found."""
        try:
            await self._find_ends()
            if self._group is not None:
                await self._find_committed(self._group)
            await self._find_beginnings()
        except Refused as refused:
            for cursor in self._fetching.cursors.values():
                if cursor.is_lost:
                    cursor.failure = refused
            return True
        return not any(cursor.is_lost or self._is_endless(cursor) for cursor in self._fetching.cursors.values())

    def _is_endless(self, cursor: Cursor) -> bool:
        return self._stop_at_end and cursor.stop_at is None and cursor.failure is None

    async def _find_ends(self) -> None:
        endless = [cursor for cursor in self._fetching.cursors.values() if self._is_endless(cursor)]
        ends = await self._found({cursor.tp: LATEST for cursor in endless})
        for cursor in endless:
            if cursor.tp in ends:
                cursor.stop_at = ends[cursor.tp].offset

    async def _found(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """What leaders say now; a partition that is refused for good keeps no other from being read."""
        refused: dict[TopicPartition, Refusal] = {}
        found = await self._finder.find_some(wanted, refused=refused)
        for tp, refusal in refused.items():
            cursor = self._fetching.cursors.get(tp)
            # A seek that came meanwhile has another question.
            if not refusal.retriable and cursor is not None and (cursor.is_lost or self._is_endless(cursor)):
                cursor.failure = Refused.of(refusal)
        return found

    async def _find_committed(self, group: GroupCommits) -> None:
        """Only an answer without an offset sends a cursor elsewhere; an error is asked about again (G28)."""
        asked = [one for one in self._fetching.cursors.values() if one.is_lost and one.is_committed_first]
        found = await group.find(asked)
        for cursor in asked:
            # A seek that came meanwhile has taken the mark away.
            if cursor.tp not in found or not cursor.is_committed_first:
                continue
            offset = found[cursor.tp]
            if offset is None and cursor.is_committed_only:
                cursor.failure = NothingCommitted(group.group_id, cursor.topic, cursor.tp.partition)
            elif offset is None:
                cursor.nothing_committed()
            else:
                cursor.is_committed_first = False
                cursor.found(offset)

    async def _find_beginnings(self) -> None:
        lost = {
            cursor.tp: (cursor, cursor.generation, cursor.seek_time)
            for cursor in self._fetching.cursors.values()
            if cursor.is_lost and not cursor.is_committed_first
        }
        found = await self._found({tp: time for tp, (_, _, time) in lost.items() if time is not None})
        # No record is as late as was asked: then at the end.
        found |= await self._found({tp: LATEST for tp, answer in found.items() if answer.offset is None})
        for tp, (cursor, generation, _) in lost.items():
            offset = found[tp].offset if tp in found else None
            # A seek that came meanwhile has another question.
            if offset is not None and cursor.generation == generation:
                cursor.found(offset)


# ---- assignment
# Which partitions a consumer reads: those it was assigned, and those that a whole topic is given later.
#
# Invariant: a topic assigned as a whole is read as a whole. A partition that it is given later is read from its first
# record on, wherever the others began: everything in it was written after the assignment. With ``stop_at_end`` nothing
# is added, because the end was fixed when reading began.

Where = Literal["beginning", "end"]


class Assignment:
    """What one consumer reads."""

    def __init__(
        self, cluster: Cluster, fetching: Fetching, *, grows: bool, of_group: bool, on_added: Callable[[], None]
    ) -> None:
        """``of_group``: reading begins where the consumer's group has committed, if it has.

        ``on_added`` is called when a topic that is read as a whole was given partitions.
        """
        self._cluster = cluster
        self._fetching = fetching
        self._grows = grows
        self._of_group = of_group
        self._on_added = on_added
        # By topic id: a topic that is deleted and created again is another one.
        self._whole: dict[str, str] = {}
        cluster.listen(self._add_new_partitions)

    async def assign(
        self,
        partitions: Iterable[tuple[str, int] | str],
        start: Where | int,
        *,
        follows: bool = True,
        end: int | None = None,
    ) -> None:
        """Read exactly these from now on; ``start`` is where those begin that were not read before, and ``end`` the
        offset in front of which they stop.

        ``follows``: a bare topic's partitions that are added later are read too.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        chosen: dict[TopicPartition, Cursor] = {}
        whole: dict[str, str] = {}
        for entry in partitions:
            name = entry if isinstance(entry, str) else entry[0]
            topic = await self._cluster.topic(name)
            count = len(topic.partitions)
            if isinstance(entry, str):
                whole[topic.topic_id] = name
            for index in range(count) if isinstance(entry, str) else (entry[1],):
                if not 0 <= index < count:
                    message = f"partition {index} of topic '{name}' must be 0 to {count - 1}"
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
                tp = TopicPartition(topic.topic_id, index)
                chosen[tp] = self._fetching.cursors.get(tp) or self._new_cursor(name, tp, start)
                if end is not None:
                    chosen[tp].stop_at = Offset(end)
        cursors = self._fetching.cursors
        for tp in cursors.keys() - chosen.keys():
            self._fetching.drop(cursors[tp])
        cursors.clear()
        cursors.update(chosen)
        self._whole = whole if self._grows and follows else {}
        log.info("assigned %s", some_of((cursor.topic, tp.partition) for tp, cursor in chosen.items()))
        # A topic may have been given partitions while the next one was waited for.
        self._add_new_partitions()

    def add(self, topic: str, tp: TopicPartition, start: Where | None) -> Cursor:
        """Read this partition as well; ``start`` None: from where the consumer's group has committed, or not at all."""
        cursor = self._fetching.cursors[tp] = self._new_cursor(topic, tp, start or "beginning")
        cursor.is_committed_only = start is None
        return cursor

    def remove(self, cursors: Iterable[Cursor]) -> None:
        """Read these no more; what is fetched of them is dropped."""
        for cursor in cursors:
            self._fetching.drop(cursor)
            self._fetching.cursors.pop(cursor.tp, None)

    def clear(self) -> None:
        """Read nothing."""
        self._whole = {}
        self.remove(list(self._fetching.cursors.values()))

    def _add_new_partitions(self) -> None:
        added: list[tuple[str, int]] = []
        for topic_id, name in self._whole.items():
            topic = self._cluster.view.topic_by_id(topic_id)
            for partition in topic.partitions if topic is not None else ():
                if partition.tp not in self._fetching.cursors:
                    self._fetching.cursors[partition.tp] = self._new_cursor(name, partition.tp, "beginning")
                    added.append((name, partition.tp.partition))
        if added:
            log.info("assigned %s as well, added to a topic that is read as a whole", some_of(added))
            self._on_added()

    def _new_cursor(self, topic: str, tp: TopicPartition, start: Where | int) -> Cursor:
        cursor = Cursor(topic, tp)
        if isinstance(start, str):
            cursor.seek(time=EARLIEST if start == "beginning" else LATEST)
        else:
            cursor.seek(offset=Offset(operator.index(start)))
        if self._of_group:
            cursor.begin_at_committed()
        return cursor


# ---- lag
# How far behind a consumer is: in records by the end of what it may read, in seconds by the next record's timestamp.
#
# Invariant: a partition is left out rather than guessed: when its position is not found yet, or its leader does not
# answer. Nothing that is measured moves a position or takes from the buffer.

# ---- records_behind
# How many records a reader is behind: the high watermark minus where it is, or minus the log start above that.
#
# Invariant: where position or end is not known there is no lag; it is never 0 for that. Deleted records do not count: a
# reader below the log start can read nothing of them.


def records_behind(position: int | None, end: int | None, log_start: int | None = None) -> int | None:
    """Records that are left from ``position``, an offset that is read or committed, to ``end``, the high watermark.

    None without one of the two; ``log_start`` None: not known, and counted as if nothing was deleted. 0 for a position
    above the end: a high watermark is known later than what was read below it.
    """
    return None if position is None or end is None else max(0, end - max(position, log_start or 0))


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
