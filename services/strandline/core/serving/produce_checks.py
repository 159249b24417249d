"""Batches that wait until the coordinator of their transaction has added the partition (X9).

Invariant: the batches of one producer wait in order of arrival behind the one that was asked about; each leaves exactly
once, by the answer, by a change of leader or by its call's end. Nothing that waits here is appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from strandline.core.control import topic_configs
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.types import Acks, BatchHeader, TopicPartition


class UnverifiedBatch(NamedTuple):
    """A batch that waits, and the slot of its call that it will fill."""

    call: ParkedProduce
    slot: int
    part: ProducePartition

    @property
    def producer_epoch(self) -> int:
        """The epoch of its transaction."""
        assert self.part.header.producer is not None, "a batch without a producer is of no transaction"
        return self.part.header.producer.producer_epoch


_Producer = tuple[TopicPartition, int]
"""A producer id in one partition."""

_Item = TypeVar("_Item")


class Verification(Generic[_Item]):
    """The waiting batches of one node, by partition and producer."""

    __slots__ = ("_asked", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[_Producer, deque[_Item]] = {}
        """Changed here alone."""
        # Correlation id of the question -> whose answer it is about.
        self._asked: dict[int, _Producer] = {}

    def holds(self, tp: TopicPartition, producer_id: int) -> bool:
        """Whether a batch of this producer waits, so that later ones must wait behind it."""
        return (tp, producer_id) in self.waiting

    def ask(self, correlation_id: int, tp: TopicPartition, producer_id: int) -> None:
        """Make the first waiting batch of this producer wait for the answer to a question."""
        assert not self.holds(tp, producer_id), f"producer {producer_id} waits in {tp} already"
        self.waiting[tp, producer_id] = deque()
        self._asked[correlation_id] = (tp, producer_id)

    def wait(self, tp: TopicPartition, producer_id: int, item: _Item) -> None:
        """Hold one more behind those of its producer."""
        self.waiting[tp, producer_id].append(item)

    def answered(self, correlation_id: int) -> deque[_Item]:
        """The batches that waited for this answer, in order; none if they no longer wait."""
        producer = self._asked.pop(correlation_id, None)
        return deque() if producer is None else self.waiting.pop(producer, deque())

    def resigned(self, tp: TopicPartition) -> list[_Item]:
        """Remove and return everything that waits in a partition that this node no longer leads (X10)."""
        self._asked = {number: producer for number, producer in self._asked.items() if producer[0] != tp}
        gone = [producer for producer in self.waiting if producer[0] == tp]
        return [item for producer in gone for item in self.waiting.pop(producer)]


# ---- timestamps
# Decides whether a batch's timestamps are close enough to the current time (Kafka: LogValidator; KIP-937).
#
# Invariant: no batch is appended whose newest time lies further ahead than its topic allows: retention by time goes by
# that time, so a producer that sends microseconds for milliseconds would keep a segment, and all behind it, for ever.
# Judged by the header, whose first and newest times its producer wrote; the times between them are not looked at.


def timestamp_refusal(header: BatchHeader, configs: Mapping[str, str], wall_ms: int) -> Refusal | None:
    """Why a producer's batch is refused for its timestamps; None if it is not. ``wall_ms``: ms since 1970."""
    ahead_ms, behind_ms = header.max_timestamp_ms - wall_ms, wall_ms - header.base_timestamp_ms
    after_ms = int(configs.get(topic_configs.TIMESTAMP_AFTER_MAX, topic_configs.DEFAULT_AFTER_MAX_MS))
    if ahead_ms > after_ms:
        newest = f"the newest time, {header.max_timestamp_ms} ms, is {ahead_ms} ms ahead"
        return _refusal(newest, topic_configs.TIMESTAMP_AFTER_MAX, after_ms)
    before_ms = int(configs.get(topic_configs.TIMESTAMP_BEFORE_MAX, topic_configs.DEFAULT_BEFORE_MAX_MS))
    if header.base_timestamp_ms >= 0 and behind_ms > before_ms:
        first = f"the first time, {header.base_timestamp_ms} ms, is {behind_ms} ms old"
        return _refusal(first, topic_configs.TIMESTAMP_BEFORE_MAX, before_ms)
    return None


def _refusal(what: str, setting: str, limit_ms: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_TIMESTAMP,
        f"{what}, and the topic's {setting} is {limit_ms}; send milliseconds since 1970, or change the setting",
        Outcome.NOT_APPENDED,
    )


class ParkedProduce:
    """A produce call some of whose partitions are not yet acknowledged."""

    __slots__ = (
        "acks",
        "deadline_ms",
        "request_id",
        "results",
        "size_bytes",
        "transactional_id",
        "unverified",
        "waiting",
    )

    def __init__(self, request_id: int, acks: Acks, deadline_ms: int, transactional_id: str | None = None) -> None:
        self.request_id = request_id
        self.acks = acks
        self.deadline_ms = deadline_ms
        # One slot per partition of the request, in its order; final once the partition is not waiting.
        self.results: list[ProduceResult] = []
        # Partition -> indexes of its slots in `results`.
        self.waiting: dict[TopicPartition, list[int]] = {}
        # Slots whose batch is not appended, because its transaction may not include the partition.
        self.unverified: frozenset[int] = _NO_SLOTS
        self.transactional_id = transactional_id
        self.size_bytes = 0

    def holds_unverified(self, tp: TopicPartition, index: int) -> None:
        """The batch of slot ``index`` waits before its append."""
        self.unverified |= {index}
        self.waits_at(tp, index)

    def takes_up(self, tp: TopicPartition, index: int) -> None:
        """The batch of slot ``index``, the only one of its partition, is decided again."""
        self.unverified -= {index}
        del self.waiting[tp]

    def waits_at(self, tp: TopicPartition, index: int) -> None:
        """Set the result of slot ``index``, which is answered once its offset is reached."""
        self.waiting.setdefault(tp, []).append(index)

    def refuse(self, tp: TopicPartition, refusal: Refusal) -> None:
        """Turn what still waits in this partition into a refusal."""
        for index in self.waiting.pop(tp, ()):
            result = self.results[index]
            said = Refusal(refusal.code, _UNVERIFIED, Outcome.NOT_APPENDED) if index in self.unverified else refusal
            self.results[index] = ProduceResult(tp, result.base_offset, None, said, result.leader_hint)


_NO_SLOTS: frozenset[int] = frozenset()


_UNVERIFIED = "the coordinator did not confirm in time that the transaction includes the partition; nothing is appended"
