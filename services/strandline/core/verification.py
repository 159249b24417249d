"""What waits until the coordinator of a transaction knows that a partition takes part in it (X9).

Invariant: what concerns one producer waits in the order in which it came, behind what was asked about; each leaves
exactly once, by the answer, by a change of leader or by its call's end. Nothing that waits here is appended.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from strandline.core.messages import ProducePartition
from strandline.core.types import TopicPartition

if TYPE_CHECKING:
    from strandline.core.produce_serving import ParkedProduce


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
    """What waits on one node, by partition and producer."""

    __slots__ = ("_asked", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[_Producer, deque[_Item]] = {}
        """Changed here alone."""
        # Correlation id of the question -> whose answer it is about.
        self._asked: dict[int, _Producer] = {}

    def holds(self, tp: TopicPartition, producer_id: int) -> bool:
        """Whether something of this producer waits, so that what comes later must wait behind it."""
        return (tp, producer_id) in self.waiting

    def ask(self, correlation_id: int, tp: TopicPartition, producer_id: int) -> None:
        """What concerns this producer waits for the answer to a question; there is none before it."""
        assert not self.holds(tp, producer_id), f"producer {producer_id} waits in {tp} already"
        self.waiting[tp, producer_id] = deque()
        self._asked[correlation_id] = (tp, producer_id)

    def wait(self, tp: TopicPartition, producer_id: int, item: _Item) -> None:
        """Hold one more behind those of its producer."""
        self.waiting[tp, producer_id].append(item)

    def answered(self, correlation_id: int) -> deque[_Item]:
        """What waited for this answer, in order; nothing if it waits no longer."""
        producer = self._asked.pop(correlation_id, None)
        return deque() if producer is None else self.waiting.pop(producer, deque())

    def resigned(self, tp: TopicPartition) -> list[_Item]:
        """Give back everything that waits in a partition that this node leads no longer (X10)."""
        self._asked = {number: producer for number, producer in self._asked.items() if producer[0] != tp}
        gone = [producer for producer in self.waiting if producer[0] == tp]
        return [item for producer in gone for item in self.waiting.pop(producer)]
