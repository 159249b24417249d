"""A producer and a consumer of topics in memory, for the unit tests of programs: no cluster, no socket.

Invariant: everything that needs no cluster is the code of the real clients, so that a fake behaves as they do: buffers,
serializers, partitions of keys, positions, `poll` and iteration, commits. A fake is the only member of its group and
has no transactions.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from strandline.client.cluster.metadata import Cluster
from strandline.client.consume.cursor import Cursor, FetchAnswer
from strandline.client.consume.fetching import Fetching
from strandline.client.consumer import Consumer
from strandline.client.groups.committed_offsets import AsMember, CommittedOffsets, OffsetAndMetadata
from strandline.client.offsets import LATEST, FoundOffset, OffsetFinder
from strandline.client.produce.delivery import OutgoingBatch
from strandline.client.produce.dispatcher import Dispatcher
from strandline.client.producer import Producer
from strandline.client.records import ConsumerRecord, K, RebalanceListener, TopicPartition, V
from strandline.core import types
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import MetadataImage, PartitionImage, TopicImage
from strandline.core.types import Offset, Rules
from strandline.records.batch import parse_header, stamp
from strandline.records.codec import decode_batch
from strandline.rpc.convert.subscription import update_of_image

_UNKNOWN_TOPIC_MS = 100
"""How long to wait for a topic that the test did not create."""


class FakeTopics:
    """The topics that fakes share, and what groups have committed."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        """``partitions``: the number of partitions of each topic."""
        self.committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._topics = partitions
        self._logs: dict[types.TopicPartition, list[bytes]] = {
            types.TopicPartition(name, index): [] for name, count in partitions.items() for index in range(count)
        }
        self._refusals: deque[ErrorCode] = deque()
        # Weak, so that a consumer that a test has dropped is not kept and fed.
        self._readers: WeakSet[_FromMemory] = WeakSet()

    def refuse(self, code: ErrorCode) -> None:
        """Fail the next batch that is sent, with this error."""
        self._refusals.append(code)

    def records(self, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
        """What was sent to a topic, by partition and offset."""
        batches = [(tp.partition, each) for tp, log in self._logs.items() if tp.topic_id == topic for each in log]
        return [ConsumerRecord(topic, index, *record) for index, each in batches for record in decode_batch(each)]

    def _end(self, tp: types.TopicPartition) -> Offset:
        return parse_header(self._logs[tp][-1]).next_offset if self._logs[tp] else Offset(0)

    def _take(self, batch: OutgoingBatch) -> None:
        batch.attempts = 1
        if self._refusals:
            batch.fail(self._refusals.popleft(), "as the test asked for")
            return
        base, stamped = self._end(batch.tp), bytearray().join(batch.as_sent())
        stamp(stamped, base, 1)
        self._logs[batch.tp].append(bytes(stamped))
        batch.succeed(base)
        for reader in list(self._readers):
            reader.pump()

    def _show(self, cluster: Cluster) -> None:
        parts: dict[str, list[PartitionImage]] = {name: [] for name in self._topics}
        usual: Any = {"replicas": (0,), "isr": (0,), "leader": 0, "leader_epoch": 1, "partition_epoch": 1, "min_isr": 1}
        for tp in self._logs:
            parts[tp.topic_id].append(PartitionImage(tp=tp, **usual))
        topics = tuple(TopicImage(name=name, topic_id=name, partitions=tuple(parts[name])) for name in parts)
        whole: Any = {"cluster_id": "in memory", "controller_epoch": 1, "metadata_offset": 1, "is_snapshot": True}
        cluster.view.apply(update_of_image(MetadataImage(**whole, rules=Rules(), topics=topics)))
        cluster.timeout_ms = _UNKNOWN_TOPIC_MS


class FakeProducer(Producer[K, V]):
    """A `Producer` that writes to topics in memory."""

    def __init__(self, topics: FakeTopics, **settings: Any) -> None:
        """``settings`` are those of a `Producer`."""
        super().__init__("in-memory:1", **{"max_block_ms": _UNKNOWN_TOPIC_MS, **settings})
        self._topics = topics

    async def start(self) -> None:
        """Does nothing: there is nothing to connect to."""
        self._topics._show(self._cluster)
        self._dispatcher = dispatcher = _IntoMemory(self._cluster, self._settings, self._batch_ended)
        dispatcher.topics = self._topics


class _IntoMemory(Dispatcher):
    topics: FakeTopics

    def add(self, batch: OutgoingBatch) -> None:
        self.topics._take(batch)
        self._on_end(batch)


class FakeConsumer(Consumer[K, V]):
    """A `Consumer` that reads topics in memory."""

    def __init__(self, topics: FakeTopics, **settings: Any) -> None:
        """``settings``: those of a `Consumer`."""
        super().__init__("in-memory:1", **settings)
        self._topics = topics

    async def start(self) -> None:
        """Does nothing: there is nothing to connect to."""
        self._topics._show(self._cluster)
        fetching = _FromMemory(self._cluster, self._policy, on_news=self._news.set, on_lost=self._lost.set)
        offsets = _OffsetsInMemory(self._cluster, self._group_id or "")
        finder = _FinderInMemory(self._cluster)
        fetching.topics = offsets.topics = finder.topics = self._topics
        self._use(fetching, None if self._group_id is None else offsets, finder)
        self._topics._readers.add(fetching)

    async def subscribe(
        self, topics: str | Sequence[str] = (), *, pattern: str | None = None, listener: RebalanceListener | None = None
    ) -> None:
        """Read all partitions of these topics, as the only member of the group."""
        self._grouped()
        names = {topics} if isinstance(topics, str) else {*topics}
        names.update(name for name in self._topics._topics if pattern is not None and re.fullmatch(pattern, name))
        await (listener or RebalanceListener()).on_assigned(sorted(await self.assign(sorted(names))))


class _FromMemory(Fetching):
    topics: FakeTopics

    def pump(self, cursors: Iterable[Cursor] | None = None) -> None:
        for cursor in list(self.cursors.values()):
            begin, end = cursor.fetch_offset, self.topics._end(cursor.tp)
            if begin is None or not cursor.may_fetch(self.now_ms(), self._policy.buffer_bytes):
                continue
            if begin > end:
                self._refused(cursor, Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {end}"))
                self.proceed(cursor)
            elif begin < end:
                batches = (one for one in self.topics._logs[cursor.tp] if parse_header(one).next_offset > begin)
                self._take(cursor, FetchAnswer(None, end, Offset(0), None, b"".join(batches)))


class _FinderInMemory(OffsetFinder):
    topics: FakeTopics

    async def find_some(
        self, wanted: Mapping[types.TopicPartition, int], *, deadline_ms: int = 0, refused: Any = None
    ) -> dict[types.TopicPartition, FoundOffset]:
        return {tp: FoundOffset(self._offset_at(tp, time), None, None) for tp, time in wanted.items()}

    def _offset_at(self, tp: types.TopicPartition, time: int) -> Offset | None:
        if time < 0:
            return self.topics._end(tp) if time == LATEST else Offset(0)
        of_topic = self.topics.records(tp.topic_id)
        later = (one.offset for one in of_topic if one.partition == tp.partition and (one.timestamp_ms or 0) >= time)
        return next(map(Offset, later), None)


class _OffsetsInMemory(CommittedOffsets):
    topics: FakeTopics

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, member: AsMember | None = None, deadline_ms: int
    ) -> dict[TopicPartition, Refusal]:
        self.topics.committed.setdefault(self.group_id, {}).update(offsets)
        return {}

    async def fetch(
        self, partitions: Iterable[TopicPartition] | None, *, deadline_ms: int, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        known = self.topics.committed.get(self.group_id, {})
        return {tp: known.get(tp) for tp in (known if partitions is None else partitions)}

    async def fetch_once(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self.fetch(partitions, deadline_ms=0)
