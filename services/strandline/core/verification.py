"""Which batches wait until the coordinator of their transaction knows that this partition takes part in it (X9).

Invariant: batches of one producer wait in the order in which they came, behind the one that was asked about; a batch
leaves exactly once, by the answer, by a change of leader or by its call's end. Nothing that waits here is appended.
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
        # Correlation id of the question -> whose batches its answer is about.
        self._asked: dict[int, _Producer] = {}

    def holds(self, tp: TopicPartition, producer_id: int) -> bool:
        """Whether batches of this producer wait, so that its later ones must wait behind them."""
        return (tp, producer_id) in self.waiting

    def ask(self, correlation_id: int, tp: TopicPartition, producer_id: int) -> None:
        """The batches of this producer wait for the answer to a question; there is none before it."""
        assert not self.holds(tp, producer_id), f"producer {producer_id} waits in {tp} already"
        self.waiting[tp, producer_id] = deque()
        self._asked[correlation_id] = (tp, producer_id)

    def wait(self, producer_id: int, batch: UnverifiedBatch) -> None:
        """Hold a batch behind those of its producer."""
        self.waiting[batch.part.tp, producer_id].append(batch)

    def answered(self, correlation_id: int) -> deque[UnverifiedBatch]:
        """What waited for this answer, in order; nothing if it waits no longer."""
        producer = self._asked.pop(correlation_id, None)
        return deque() if producer is None else self.waiting.pop(producer, deque())

    def resigned(self, tp: TopicPartition) -> list[UnverifiedBatch]:
        """Give back everything that waits in a partition that this node leads no longer (X10)."""
        self._asked = {number: producer for number, producer in self._asked.items() if producer[0] != tp}
        gone = [producer for producer in self.waiting if producer[0] == tp]
        return [batch for producer in gone for batch in self.waiting.pop(producer)]
