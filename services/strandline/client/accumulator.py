"""When records become a batch: at ``batch_bytes``, after ``linger_ms``, or when somebody flushes.

Invariant: records of a partition leave in the order they came; what the buffers and everything on its way hold
together never exceeds ``buffer_bytes`` by more than one record.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from strandline.client.delivery import OutgoingBatch
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import TopicPartition
from strandline.records.batch import MAX_BATCH_BYTES
from strandline.records.codec import BatchBuilder, Headers
from strandline.records.compression import Compression

_PER_RECORD_BYTES = 24
"""What a record takes beside key, value and headers, rounded up."""


class BufferMemory:
    """How many bytes are buffered or on their way, and who waits for room."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether the next record has to wait."""
        return self.used_bytes >= self.limit_bytes

    def release(self, size_bytes: int) -> None:
        """A batch has ended."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more was released than reserved"
        self.wake_next()

    async def wait_for_room(self) -> None:
        """Wait until there is room; the caller sets the deadline. First come, first served."""
        while self.is_full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
        self.wake_next()

    def wake_next(self) -> None:
        """Pass the turn on: one release may have made room for several."""
        while self._waiting and not self.is_full:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Let everybody look again: the producer is closing."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)


class PartitionBuffer:
    """The open batch of one partition."""

    __slots__ = ("_batch_bytes", "_compression", "_make", "_memory", "_on_closed", "open_batch", "tp")

    def __init__(
        self,
        tp: TopicPartition,
        memory: BufferMemory,
        *,
        batch_bytes: int,
        compression: Compression,
        make: Callable[[], OutgoingBatch],
        on_closed: Callable[[OutgoingBatch], None],
    ) -> None:
        """``make`` begins a batch (and its linger time), ``on_closed`` takes it when it is complete."""
        self.tp = tp
        self._memory = memory
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._make = make
        self._on_closed = on_closed
        self.open_batch: OutgoingBatch | None = None

    def append(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> tuple[OutgoingBatch, int]:
        """The batch that has the record now, and its place in it.

        Raises:
            Refused: MESSAGE_TOO_LARGE, no batch can hold it; INVALID_TIMESTAMP.
        """
        batch = self.open_batch
        if batch is not None:
            builder = batch.builder
            assert builder is not None
            if not builder.try_append(key, value, timestamp_ms, headers):
                self.close_batch()
                batch = None
        if batch is None:
            batch = self._begin(key, value, timestamp_ms, headers)
        builder = batch.builder
        assert builder is not None
        size = len(value or b"") + len(key or b"") + _PER_RECORD_BYTES
        if headers:
            size += sum(len(name) + len(content or b"") for name, content in headers)
        batch.reserved_bytes += size
        self._memory.used_bytes += size
        index = len(builder) - 1
        if builder.size_bytes + size > self._batch_bytes:
            # Another like this would not fit; closing now lets keyless records move on to another partition.
            self.close_batch()
        return batch, index

    def _begin(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers) -> OutgoingBatch:
        builder = BatchBuilder(compression=self._compression, max_bytes=self._batch_bytes)
        try:
            builder.try_append(key, value, timestamp_ms, headers)
        except Refused as refused:
            if refused.refusal.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            # Larger than a batch should be: it still goes, alone, up to what a node accepts.
            builder = BatchBuilder(compression=self._compression, max_bytes=MAX_BATCH_BYTES)
            builder.try_append(key, value, timestamp_ms, headers)
        batch = self._make()
        batch.builder = builder
        self.open_batch = batch
        return batch

    def close_batch(self) -> None:
        """Hand the open batch over, if there is one."""
        batch, self.open_batch = self.open_batch, None
        if batch is not None:
            batch.seal()
            self._on_closed(batch)
