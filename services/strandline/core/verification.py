"""Which batches wait until the coordinator of their transaction knows that this partition takes part in it (X9).

Invariant: batches of one producer wait in the order in which they came, behind the one that was asked about; a batch
leaves exactly once, by the answer, by a change of leader or by its call's end. Nothing that waits here is appended.
An answer is about the transaction that was asked about: a batch of another epoch that waits behind it needs its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from strandline.core.messages import ProducePartition
from strandline.core.types import TopicPartition

if TYPE_CHECKING:
    from strandline.core.produce_serving import ParkedProduce


class UnverifiedBatch(NamedTuple):
    """A batch that waits, and the slot of its call that it will fill."""

    call: ParkedProduce
    slot: int
    part: ProducePartition


_Producer = tuple[TopicPartition, int]
"""A producer id in one partition."""


class Verification:
    """The unverified batches of one node, by partition and producer."""

    __slots__ = ("_asked", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[_Producer, deque[UnverifiedBatch]] = {}
        """Changed here alone."""
        # Correlation id of the question -> whose batches wait for its answer, and the epoch that it is about.
        self._asked: dict[int, tuple[_Producer, int]] = {}

    def holds(self, tp: TopicPartition, producer_id: int) -> bool:
        """Whether batches of this producer wait, so that its later ones must wait behind them."""
        return (tp, producer_id) in self.waiting

    def ask(self, correlation_id: int, tp: TopicPartition, producer_id: int, producer_epoch: int) -> None:
        """The batches of this producer wait for the answer to a question; there is none before it."""
        assert not self.holds(tp, producer_id), f"producer {producer_id} waits in {tp} already"
        self.waiting[tp, producer_id] = deque()
        self._asked[correlation_id] = ((tp, producer_id), producer_epoch)

    def wait(self, producer_id: int, batch: UnverifiedBatch) -> None:
        """Hold a batch behind those of its producer."""
        self.waiting[batch.part.tp, producer_id].append(batch)

    def answered(self, correlation_id: int) -> tuple[deque[UnverifiedBatch], int | None]:
        """What waited for this answer, in order, and the producer epoch that was asked about; nothing and None if the
        answer came too late."""
        asked = self._asked.pop(correlation_id, None)
        if asked is None:
            return deque(), None
        producer, producer_epoch = asked
        return self.waiting.pop(producer, deque()), producer_epoch

    def resigned(self, tp: TopicPartition) -> list[UnverifiedBatch]:
        """Give back everything that waits in a partition that this node leads no longer (X10)."""
        self._asked = {number: asked for number, asked in self._asked.items() if asked[0][0] != tp}
        gone = [producer for producer in self.waiting if producer[0] == tp]
        return [batch for producer in gone for batch in self.waiting.pop(producer)]
