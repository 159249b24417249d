"""Decides who is waiting, for which offset, until when.

Invariant: whatever is parked leaves exactly once, by its offset, its deadline, a change of leader or its
caller's going away; the number and the bytes of what waits are bounded.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.messages import ProduceResult
from strandline.core.types import Acks, Offset, TopicPartition


class ParkedProduce:
    """A produce call some of whose partitions are not yet acknowledged."""

    __slots__ = ("acks", "deadline_ms", "request_id", "results", "size_bytes", "waiting")

    def __init__(self, request_id: int, acks: Acks, deadline_ms: int) -> None:
        self.request_id = request_id
        self.acks = acks
        self.deadline_ms = deadline_ms
        # One slot per partition of the request, in its order; final once the partition is not waiting.
        self.results: list[ProduceResult] = []
        # Partition -> indexes of its slots in `results`.
        self.waiting: dict[TopicPartition, list[int]] = {}
        self.size_bytes = 0

    def waits_at(self, tp: TopicPartition, index: int) -> None:
        """The result in slot ``index`` is what will be answered once its offset is reached."""
        self.waiting.setdefault(tp, []).append(index)

    def refuse(self, tp: TopicPartition, refusal: Refusal) -> None:
        """Turn what still waits in this partition into a refusal."""
        for index in self.waiting.pop(tp, ()):
            result = self.results[index]
            self.results[index] = ProduceResult(tp, result.base_offset, None, refusal, result.leader_hint)


TIMED_OUT = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "timeout_ms passed before the records were committed: they are appended and may still commit; "
    "retry with the same producer id and sequence",
    Outcome.MAY_APPEAR,
)


class Purgatory:
    """Parked produce calls, by partition and offset, and by deadline."""

    __slots__ = (
        "_by_deadline",
        "_by_offset",
        "_max_bytes",
        "_max_entries",
        "_parked",
        "_tickets",
        "expired_total",
        "size_bytes",
    )

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._parked: dict[int, ParkedProduce] = {}
        # Required offsets come almost in order; a duplicate may wait for an older one, hence heaps.
        self._by_offset: dict[tuple[TopicPartition, Acks], list[tuple[Offset, int, int]]] = {}
        self._by_deadline: list[tuple[int, int]] = []
        self._tickets = count()
        self.size_bytes = 0
        self.expired_total = 0

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def is_full(self) -> bool:
        """Whether another call must be refused (RESOURCE_EXHAUSTED) instead of parked."""
        return len(self._parked) >= self._max_entries or self.size_bytes >= self._max_bytes

    def park(self, call: ParkedProduce, required: dict[TopicPartition, Offset]) -> None:
        """Hold ``call`` until every partition in ``required`` reached its offset."""
        self._parked[call.request_id] = call
        self.size_bytes += call.size_bytes
        heappush(self._by_deadline, (call.deadline_ms, call.request_id))
        for tp, offset in required.items():
            heap = self._by_offset.setdefault((tp, call.acks), [])
            heappush(heap, (offset, next(self._tickets), call.request_id))
            if len(heap) > 64 and len(heap) > 4 * len(self._parked):
                # The HW stands still and calls time out: forget those that have left. Sorted is a heap.
                heap[:] = sorted(entry for entry in heap if entry[2] in self._parked)

    def reached(self, tp: TopicPartition, acks: Acks, offset: Offset) -> list[ParkedProduce]:
        """The calls with ``acks`` that wait in ``tp`` for an offset <= ``offset``; they wait there no longer.

        acks=all waits for the HW, acks=1 (under ``fsync``) for the leader's own durable LEO.
        """
        heap = self._by_offset.get((tp, acks))
        found: list[ParkedProduce] = []
        while heap and heap[0][0] <= offset:
            call = self._parked.get(heappop(heap)[2])
            if call is not None and tp in call.waiting:
                found.append(call)
        if heap is not None and not heap:
            del self._by_offset[tp, acks]
        return found

    def waiting_in(self, tp: TopicPartition) -> list[ParkedProduce]:
        """Every call that waits in ``tp``; it is forgotten there (a change of leader)."""
        heap = self._by_offset.pop((tp, Acks.ALL), []) + self._by_offset.pop((tp, Acks.LEADER), [])
        calls = [self._parked.get(request_id) for _, _, request_id in sorted(heap)]
        return [call for call in calls if call is not None and tp in call.waiting]

    def expired(self, now_ms: int) -> list[ParkedProduce]:
        """The calls whose deadline has come; what they waited for is refused with REQUEST_TIMED_OUT."""
        late: list[ParkedProduce] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            call = self._parked.get(heappop(self._by_deadline)[1])
            if call is None:
                continue
            for tp in tuple(call.waiting):
                call.refuse(tp, TIMED_OUT)
            late.append(call)
        self.expired_total += len(late)
        return late

    def release(self, request_id: int) -> None:
        """The call was answered, or its caller is gone."""
        call = self._parked.pop(request_id, None)
        if call is not None:
            self.size_bytes -= call.size_bytes
        if len(self._by_deadline) > 64 and len(self._by_deadline) > 4 * len(self._parked):
            self._by_deadline = [entry for entry in self._by_deadline if entry[1] in self._parked]
            self._by_deadline.sort()
