"""Requests to coordinators that wait until the coordinator of their transaction has added the partition (X9, X16).

Invariant: nothing was written for what waits here; each request leaves exactly once, by the answer, its deadline, a
change of leader or with its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from strandline.core.coordinator.machine import VerifyTransaction
from strandline.core.effects import Effect, SendAddPartitions
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.events import CoordinatorAsked
from strandline.core.types import TopicPartition
from strandline.core.verification import Verification

TOO_LATE = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "the coordinator of the transaction did not confirm in time that the group takes part in it; ask again",
    Outcome.NOT_APPENDED,
)


class Released(NamedTuple):
    """A request that waits no longer."""

    event: CoordinatorAsked
    is_asked: bool
    """Whether the answer is about it: the first that came."""
    is_alike: bool
    """Whether it is of the transaction that the answer is about; a later one may be of the next."""


class _Waiting(NamedTuple):
    event: CoordinatorAsked
    producer_epoch: int


class UnverifiedRequests:
    """Those of one node."""

    def __init__(self, next_correlation_id: Callable[[], int]) -> None:
        self._next_correlation_id = next_correlation_id
        self._verification: Verification[_Waiting] = Verification()
        self._waiting: dict[int, CoordinatorAsked] = {}
        self._by_deadline: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, event: CoordinatorAsked, whose: VerifyTransaction, out: list[Effect]) -> None:
        """Keep a request behind those of its producer; the first of them is asked about."""
        tp, producer_id = event.tp, whose.producer_id
        if not self._verification.holds(tp, producer_id):
            correlation_id = self._next_correlation_id()
            self._verification.ask(correlation_id, tp, producer_id)
            out.append(SendAddPartitions(correlation_id, whose.transactional_id, producer_id, whose.producer_epoch, tp))
        self._verification.wait(tp, producer_id, _Waiting(event, whose.producer_epoch))
        self._waiting[event.request_id] = event
        heappush(self._by_deadline, (event.now_ms + event.timeout_ms, event.request_id))

    def answered(self, correlation_id: int) -> Iterator[Released]:
        """What waited for this answer and still does, in order."""
        found = self._verification.answered(correlation_id)
        for index, (event, producer_epoch) in enumerate(found):
            if self._waiting.get(event.request_id) is event:
                del self._waiting[event.request_id]
                yield Released(event, index == 0, producer_epoch == found[0].producer_epoch)

    def expired(self, now_ms: int) -> list[CoordinatorAsked]:
        """Those whose deadline has come."""
        late: list[CoordinatorAsked] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            deadline_ms, request_id = heappop(self._by_deadline)
            event = self._waiting.get(request_id)
            if event is not None and event.now_ms + event.timeout_ms == deadline_ms:
                late.append(self._waiting.pop(request_id))
        return late

    def call_gone(self, request_id: int) -> None:
        """The caller needs no answer."""
        self._waiting.pop(request_id, None)

    def resigned(self, tp: TopicPartition) -> list[CoordinatorAsked]:
        """Give back what waits in a partition that this node leads no longer."""
        found = [each.event for each in self._verification.resigned(tp) if each.event.request_id in self._waiting]
        for event in found:
            del self._waiting[event.request_id]
        return found
