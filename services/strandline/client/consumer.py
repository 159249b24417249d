"""What a user reads records with; decides where to begin, what is given when, and when reading is at its end.

Invariant: records of a partition come in the order of their offsets, each once, and only committed ones; the
position is the next offset to be given, never one that was only fetched.

Two ways to read: ``async for record in consumer`` gives one `ConsumerRecord` after another; `fetch_batches`
gives lists per partition and is several times faster.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from strandline.client.assignment import Assignment, Where
from strandline.client.background import Background
from strandline.client.cursor import Cursor
from strandline.client.errors import ClientClosed
from strandline.client.fetched import ConsumerRecord, FetchedRecords
from strandline.client.fetching import Fetching, FetchPolicy
from strandline.client.metadata import METADATA_STALE_MS, Cluster
from strandline.client.offsets import EARLIEST, LATEST
from strandline.client.positions import PositionFinder
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset
from strandline.records.codec import Record
from strandline.rpc import forks
from strandline.v1 import partition_pb2

_ISOLATION = {
    "read_uncommitted": partition_pb2.ISOLATION_LEVEL_UNSPECIFIED,
    "read_committed": partition_pb2.ISOLATION_LEVEL_READ_COMMITTED,
}


class Consumer:
    """Reads partitions of a cluster. Use it as an async context manager, or call `start` and `close`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        read_from: Literal["leader", "follower"] = "leader",
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        auto_offset_reset: Literal["earliest", "latest", "error"] = "error",
        stop_at_end: bool = False,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        buffer_bytes: int = 32 << 20,
        metadata_stale_ms: int = METADATA_STALE_MS,
        tls_cert: str | Path = "",
        tls_key: str | Path = "",
        tls_ca: str | Path = "",
    ) -> None:
        """``stop_at_end``: end iteration at what was the end of each partition when its position was found.

        ``auto_offset_reset`` decides what happens when the position is not in the log, or the log was truncated
        below it: "error" raises `OffsetOutOfRange` or `LogTruncated`, the others go on elsewhere (after a
        truncation at the first offset that differs). ``max_bytes`` bounds one answer. Metadata older
        than ``metadata_stale_ms`` is looked for at another process.

        Raises:
            ValueError: a setting has no such value, or the files of TLS, all given or none, cannot be used.
        """
        if read_from not in ("leader", "follower") or auto_offset_reset not in ("earliest", "latest", "error"):
            raise ValueError("read_from must be leader or follower, auto_offset_reset earliest, latest or error")
        if isolation not in _ISOLATION:
            raise ValueError(f"isolation {isolation!r} must be one of {', '.join(_ISOLATION)}")
        self._policy = FetchPolicy(
            read_from == "follower",
            auto_offset_reset,
            max_wait_ms,
            min_bytes,
            max_bytes,
            buffer_bytes,
            _ISOLATION[isolation],
        )
        self._stop_at_end = stop_at_end
        self._cluster = Cluster(
            bootstrap,
            stale_ms=metadata_stale_ms,
            on_failure=self._defect,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_ca=tls_ca,
        )
        self._background = Background(self._defect)
        self._fetching: Fetching | None = None
        self._assignment: Assignment | None = None
        self._news = asyncio.Event()
        self._lost = asyncio.Event()
        self._is_closing = False
        # What iteration has taken and not given yet, with the cursor's count of seeks at that time.
        self._iterating: deque[Record] = deque()
        self._iterated: tuple[Cursor, int] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        await self._cluster.start()
        self._fetching = Fetching(
            self._cluster, self._policy, self._background, on_news=self._news.set, on_lost=self._lost.set
        )
        positions = PositionFinder(
            self._cluster, self._fetching, stop_at_end=self._stop_at_end, lost=self._lost, on_found=self._news.set
        )
        self._assignment = Assignment(
            self._cluster, self._fetching, grows=not self._stop_at_end, on_added=self._lost.set
        )
        self._background.start(positions.run(), "find positions")

    async def close(self) -> None:
        """Stop fetching and close every connection.

        Raises:
            RuntimeError: a background task had failed unexpectedly.
        """
        self._is_closing = True
        if self._fetching is not None:
            self._fetching.close()
        self._news.set()
        try:
            await self._background.close()
        finally:
            await self._cluster.close()

    async def assign(
        self, partitions: Iterable[tuple[str, int] | str], *, start: Where | int = "beginning"
    ) -> list[tuple[str, int]]:
        """Read exactly these from now on; a bare topic means all its partitions. Returns them one by one.

        ``start`` is where reading begins in partitions that were not assigned before: an end or an offset. A bare
        topic's partitions that are added later are read too, from their first record on, unless ``stop_at_end`` is set.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._running()
        assert self._assignment is not None
        await self._assignment.assign(partitions, start)
        self._begin()
        return self.assignment

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """Every partition that is read now, those added to a bare topic included."""
        return [(cursor.topic, cursor.tp.partition) for cursor in self._running().cursors.values()]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at this offset."""
        cursor = self._cursor(topic, partition)
        self._move([cursor], offset=Offset(offset))

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go to the first offset of these partitions, of all without any."""
        self._move(self._chosen(partitions), time=EARLIEST)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go to the HW of these partitions, of all without any."""
        self._move(self._chosen(partitions), time=LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go to the first record at or after a time (ms since 1970), to the end if there is none."""
        self._move(self._chosen(partitions), time=timestamp_ms)

    def position(self, topic: str, partition: int) -> Offset | None:
        """The next offset to be given; None while it is being found."""
        return self._cursor(topic, partition).position

    def high_watermark(self, topic: str, partition: int) -> Offset | None:
        """The HW that the last answer brought; None before the first."""
        return self._cursor(topic, partition).high_watermark

    @property
    def is_finished(self) -> bool:
        """With ``stop_at_end``: whether everything was given."""
        cursors = self._running().cursors.values()
        return self._stop_at_end and all(cursor.is_finished for cursor in cursors)

    async def fetch_batches(self, timeout_ms: int | None = None) -> list[FetchedRecords]:
        """What has been fetched, waiting for something; empty at the time-out, and when finished.

        Raises:
            OffsetOutOfRange, LogTruncated: the position is lost, see ``auto_offset_reset``.
            TopicDeleted: a topic that is read is gone; the next calls say so again until another `assign`.
            UnreadableBatch: a batch cannot be unpacked; its ``next_offset`` is where to go on.
            Refused: a partition cannot be read. What was read before was given, the others come with the next call.
        """
        self._settle_iteration()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while True:
                    fetched = self._take_buffered()
                    if fetched or self.is_finished:
                        return fetched
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not self._iterating and not await self._next_chunk():
            raise StopAsyncIteration
        assert self._iterated is not None
        cursor, _ = self._iterated
        record = self._iterating.popleft()
        cursor.position = Offset(record.offset + 1)
        return ConsumerRecord(cursor.topic, cursor.tp.partition, *record)

    async def _next_chunk(self) -> bool:
        """Take the next records for iteration; False when finished."""
        while not self._iterating:
            fetching = self._running()
            cursor = next((one for one in fetching.cursors.values() if one.chunks or one.failure), None)
            if cursor is None:
                if self.is_finished:
                    return False
                self._news.clear()
                await self._news.wait()
                continue
            self._iterating.extend(self._pop(cursor).records)
            self._iterated = (cursor, cursor.generation)
            # The one that was served goes last, so that a busy partition starves no other.
            fetching.cursors[cursor.tp] = fetching.cursors.pop(cursor.tp)
            fetching.pump()
            # Lets the streams go on while the records are worked on.
            await asyncio.sleep(0)
        return True

    def _take_buffered(self) -> list[FetchedRecords]:
        fetching = self._running()
        fetched: list[FetchedRecords] = []
        for cursor in fetching.cursors.values():
            if fetched and cursor.failure is not None:
                continue
            while cursor.chunks or (cursor.failure is not None and not fetched):
                popped = self._pop(cursor)
                if popped.records:
                    cursor.position = Offset(popped.records[-1].offset + 1)
                    fetched.append(popped)
        if fetched:
            fetching.pump()
        return fetched

    def _pop(self, cursor: Cursor) -> FetchedRecords:
        if not cursor.chunks and cursor.failure is not None:
            failure, cursor.failure = cursor.failure, None
            # A caller that continues after it reads on from the same position, a little later.
            fetching = self._running()
            cursor.later(fetching.now_ms())
            fetching.proceed(cursor)
            raise failure
        popped = cursor.pop_records()
        if cursor.failure is not None and not cursor.chunks:
            # The fetch under way asks for what lies behind a batch that only a seek gets past.
            self._running().drop(cursor)
        return popped

    def _settle_iteration(self) -> None:
        """A caller that changes from iteration to batches gets the rest of the chunk that iteration took."""
        if not self._iterating or self._iterated is None:
            return
        cursor, generation = self._iterated
        if cursor.generation == generation and cursor.position is not None:
            self._move([cursor], offset=cursor.position)
        self._iterating.clear()

    def _running(self) -> Fetching:
        if self._fetching is None or self._is_closing:
            raise ClientClosed("the consumer is not running; use `async with`, or await start() first")
        forks.check()
        self._background.check()
        return self._fetching

    def _cursor(self, topic: str, partition: int) -> Cursor:
        for cursor in self._running().cursors.values():
            if cursor.topic == topic and cursor.tp.partition == partition:
                return cursor
        raise Refused(ErrorCode.INVALID_REQUEST, f"{topic}-{partition} is not assigned; assign it first")

    def _chosen(self, partitions: Sequence[tuple[str, int]]) -> list[Cursor]:
        if not partitions:
            return list(self._running().cursors.values())
        return [self._cursor(topic, partition) for topic, partition in partitions]

    def _move(self, cursors: Iterable[Cursor], *, offset: Offset | None = None, time: int | None = None) -> None:
        fetching = self._running()
        for cursor in cursors:
            fetching.drop(cursor)
            cursor.seek(offset=offset, time=time)
            if self._iterated is not None and self._iterated[0] is cursor:
                self._iterating.clear()
        self._begin()

    def _begin(self) -> None:
        self._lost.set()
        self._running().pump()

    def _defect(self, error: BaseException) -> None:
        self._news.set()
