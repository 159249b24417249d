"""Which partition's buffer a record goes to.

Invariant: a partition has one buffer for as long as its topic lives, so that its records stay in order however
often metadata changes.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache

from strandline.client.cluster.view import ClusterView
from strandline.client.produce.delivery import OutgoingBatch
from strandline.client.settings import ProducerSettings
from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.core.messages import TopicImage
from strandline.core.types import TopicPartition
from strandline.records.batch import MAX_BATCH_BYTES
from strandline.records.builder import BatchBuilder, Headers
from strandline.records.compression import Compression

# ---- batches
# When records become a batch: at ``batch_bytes``, after ``linger_ms``, or at a flush.
#
# Invariant: records of a partition leave in the order they came; what the buffers and everything on its way hold
# together never exceeds ``buffer_bytes`` by more than one record.


class BufferMemory:
    """How many bytes are buffered or on their way, and who waits for room."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.free_bytes = limit_bytes
        """The next record has to wait unless it is above 0; below 0 by at most one record."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def used_bytes(self) -> int:
        """How many bytes are not free."""
        return self._limit_bytes - self.free_bytes

    def release(self, size_bytes: int) -> None:
        """A batch has ended."""
        self.free_bytes += size_bytes
        assert self.free_bytes <= self._limit_bytes, "more was released than reserved"
        self.wake_next()

    async def wait_for_room(self) -> None:
        """Wait until there is room; the caller sets the deadline. First come, first served."""
        while self.free_bytes <= 0:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                else:
                    # Its turn had come; the next one takes it.
                    self.wake_next()
                raise
        self.wake_next()

    def wake_next(self) -> None:
        """Pass the turn on: one release may have made room for several."""
        while self._waiting and self.free_bytes > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Let all that wait look again: the producer is closing."""
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
        builder = None if batch is None else batch.builder
        record_bytes = 0 if builder is None else builder.try_append(key, value, timestamp_ms, headers)
        if batch is None or builder is None or not record_bytes:
            self.close_batch()
            batch, builder = self._begin(key, value, timestamp_ms, headers)
            record_bytes = builder.size_bytes
        self._memory.free_bytes -= record_bytes
        index = builder.count - 1
        if builder.size_bytes + record_bytes > self._batch_bytes:
            # Another like this would not fit; closing now lets keyless records move on to another partition.
            self.close_batch()
        return batch, index

    def _begin(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> tuple[OutgoingBatch, BatchBuilder]:
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
        return batch, builder

    def close_batch(self) -> None:
        """Hand the open batch over, if there is one."""
        batch, self.open_batch = self.open_batch, None
        if batch is not None:
            batch.seal()
            self._on_closed(batch)


# ---- partitioner
# Which partition a record goes to: by its key as Kafka's default does, or sticky without one.
#
# Invariant: equal keys go to equal partitions as long as the number of partitions stays, and to the very
# partition that Kafka's Java client would choose.

Partitioner = Callable[[str, bytes | None, int], int]
"""A user's own: topic, serialized key and number of partitions; returns the partition."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """MurmurHash2, 32 bits, with Kafka's seed, as an unsigned number (Kafka: Utils.murmur2, there signed)."""
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(key[at : at + 4], "little") * _M) & _MASK
        k ^= k >> _R
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if length > whole:
        h = ((h ^ int.from_bytes(key[whole:], "little")) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=8192)
def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key: the hash made positive, modulo the count (Kafka: BuiltInPartitioner)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition that records without a key go to until its batch is full (KIP-480)."""

    __slots__ = ("_draw", "current")

    def __init__(self, draw: random.Random | None = None) -> None:
        self._draw = draw or random.Random()
        self.current: int | None = None

    def choose(self, partition_count: int, available: Sequence[int]) -> int:
        """Move on to another partition, one with a leader if there is one."""
        among = [index for index in (available or range(partition_count)) if index != self.current]
        if among:
            self.current = self._draw.choice(among)
        elif self.current is None or self.current >= partition_count:
            self.current = 0
        return self.current


DELETED_AFTER_MS = 5_000
"""How long `send` waits for a topic that is deleted, because it may be created again, before it says so."""


class Route:
    """One topic as `send` uses it: its partitions' buffers, and where keyless records go now."""

    __slots__ = ("buffers", "partitioner", "sticky", "topic")

    def __init__(self, topic: TopicImage, buffers: list[PartitionBuffer], partitioner: Partitioner | None) -> None:
        self.topic = topic
        self.buffers = buffers
        self.partitioner = partitioner
        self.sticky = StickyPartition()

    def buffer_for(self, key: bytes | None, partition: int | None) -> PartitionBuffer:
        """Of the partition asked for, else of the partitioner's; without one of the key's, else of the one where
        keyless records go now.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, there is no such partition.
        """
        buffers = self.buffers
        if partition is None and self.partitioner is not None:
            partition = self.partitioner(self.topic.name, key, len(buffers))
        if partition is not None:
            if not 0 <= partition < len(buffers):
                message = f"partition {partition} of topic '{self.topic.name}' must be 0 to {len(buffers) - 1}"
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, Outcome.NOT_APPENDED)
            return buffers[partition]
        if key is not None:
            return buffers[partition_for_key(key, len(buffers))]
        current = self.sticky.current
        if current is None or buffers[current].open_batch is None:
            available = [part.tp.partition for part in self.topic.partitions if part.leader is not None]
            current = self.sticky.choose(len(buffers), available)
        return buffers[current]


class TopicRoutes:
    """The topics that are sent to, and every buffer there is."""

    def __init__(
        self,
        settings: ProducerSettings,
        memory: BufferMemory,
        make: Callable[[str, TopicPartition], OutgoingBatch],
        on_closed: Callable[[OutgoingBatch], None],
        partitioner: Partitioner | None = None,
    ) -> None:
        self.by_name: dict[str, Route] = {}
        self.buffers: dict[TopicPartition, PartitionBuffer] = {}
        self._settings = settings
        self._memory = memory
        self._make = make
        self._on_closed = on_closed
        self._partitioner = partitioner
        # Every topic that was ever sent to, and since when it is gone.
        self._used: set[str] = set()
        self._gone_since_ms: dict[str, float] = {}

    def add(self, topic: TopicImage) -> Route:
        """Send to this topic as metadata has it now."""
        route = Route(topic, [self._buffer(topic.name, part.tp) for part in topic.partitions], self._partitioner)
        self.by_name[topic.name] = route
        self._used.add(topic.name)
        return route

    def metadata_changed(self, view: ClusterView, now_ms: float) -> None:
        """Look topics up again. Buffers stay, with what is in them, while their topic lives."""
        self.by_name.clear()
        for tp in [tp for tp in self.buffers if view.topic_by_id(tp.topic_id) is None]:
            # What lingers there ends like all other batches of a deleted topic.
            self.buffers.pop(tp).close_batch()
        for name in self._used:
            if view.topic(name) is not None:
                self._gone_since_ms.pop(name, None)
            else:
                self._gone_since_ms.setdefault(name, now_ms)

    def hope_ms(self, topic: str, now_ms: float) -> int | None:
        """How long a topic that was sent to and is deleted may still come back; None if it is not deleted."""
        since_ms = self._gone_since_ms.get(topic)
        return None if since_ms is None else max(0, int(since_ms + DELETED_AFTER_MS - now_ms))

    def _buffer(self, topic: str, tp: TopicPartition) -> PartitionBuffer:
        buffer = self.buffers.get(tp)
        if buffer is None:
            buffer = self.buffers[tp] = PartitionBuffer(
                tp,
                self._memory,
                batch_bytes=self._settings.batch_bytes,
                compression=self._settings.compression,
                make=lambda: self._make(topic, tp),
                on_closed=self._on_closed,
            )
        return buffer
