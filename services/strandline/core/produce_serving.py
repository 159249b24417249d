"""What happens to a produce request: refused, appended and answered, or appended and parked in the purgatory.

Invariants: the sequence check precedes the min-ISR check, so a duplicate is never NOT_APPENDED (M61);
acks=all is refused below min ISR before anything is written (M47); an acknowledgement of acks=all means
HW >= last offset + 1 (M46), one of acks=1 under ``fsync`` the leader's own commit (M55). What is parked leaves exactly
once, by its offset, its deadline, a change of leader or its caller's going away; its number and bytes are bounded.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count

from strandline.core.coordinator.internal_topics import not_for_clients
from strandline.core.effects import AnswerProduce, Effect
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.events import ProduceArrived
from strandline.core.leader import LeaderReplica
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.node_state import NOTHING, NodeState
from strandline.core.producers import SequenceCheck, SequenceVerdict
from strandline.core.types import Acks, Durability, Offset, TopicPartition

_NOT_APPENDED = Outcome.NOT_APPENDED
_MAY_APPEAR = Outcome.MAY_APPEAR

FULL = Refusal(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    "too many produce requests wait for their commit on this node; back off and send again",
    _NOT_APPENDED,
)
TIMED_OUT = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "timeout_ms passed before the records were committed: they are appended and may still commit; "
    "retry with the same producer id and sequence",
    Outcome.MAY_APPEAR,
)


class ProduceServing:
    """Produce requests of one node. Appends to the logs of ``state.leaders``; owns the purgatory."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.purgatory = Purgatory(state.timings.purgatory_max_entries, state.timings.purgatory_max_bytes)
        self._fsync = state.rules.durability is Durability.FSYNC
        # Ends of the appends with acks=1 that are not durable yet, by partition, in order.
        self._unsettled: dict[TopicPartition, deque[Offset]] = {}

    def arrived(self, event: ProduceArrived, out: list[Effect]) -> dict[TopicPartition, Offset]:
        """Append what may be appended; park what must wait.

        Returns, for each log that grew, its LEO before this request; the caller then raises HWs and wakes
        fetches, so a call that is acknowledged at once leaves through `reached`.
        """
        grown: dict[TopicPartition, Offset] = {}
        if self.purgatory.is_full:
            out.append(AnswerProduce(event.request_id, tuple(self._refused(p, FULL) for p in event.partitions)))
            return grown
        call = ParkedProduce(event.request_id, event.acks, event.now_ms + event.timeout_ms)
        required: dict[TopicPartition, Offset] = {}
        for index, part in enumerate(event.partitions):
            result, offset = self._append(part, event.acks, grown, out)
            call.results.append(result)
            if offset is not None:
                call.waits_at(part.tp, index)
                call.size_bytes += part.header.size_bytes
                required[part.tp] = max(offset, required.get(part.tp, offset))
        if required:
            call.size_bytes = max(call.size_bytes, event.size_bytes)
            self.purgatory.park(call, required)
        else:
            out.append(AnswerProduce(event.request_id, tuple(call.results)))
        return grown

    def _append(
        self, part: ProducePartition, acks: Acks, grown: dict[TopicPartition, Offset], out: list[Effect]
    ) -> tuple[ProduceResult, Offset | None]:
        """One partition: its result, and the offset the result must wait for (None: it is final)."""
        leader = self._state.leaders.get(part.tp)
        if leader is None:
            return self._not_led(part.tp), None
        invalid = part.invalid or self._too_large(part)
        if invalid is not None:
            return self._refused(part, invalid), None
        check = leader.log.producers.check(part.header, log_start_offset=leader.log.log_start_offset)
        if check.verdict is not SequenceVerdict.NEXT:
            return self._out_of_sequence(part, check, acks, leader)
        if acks is Acks.ALL and leader.is_under_min_isr:
            return self._refused(part, self._too_few(leader)), None
        grown.setdefault(part.tp, leader.log.leo)
        base_offset = leader.log.append_as_leader(part.header, part.payload, leader.image.leader_epoch, out)
        return self._appended(part, base_offset, leader.log.leo, acks, leader)

    def _appended(
        self, part: ProducePartition, base_offset: Offset, end: Offset, acks: Acks, leader: LeaderReplica
    ) -> tuple[ProduceResult, Offset | None]:
        if acks is Acks.NONE:
            return ProduceResult(part.tp), None
        result = ProduceResult(part.tp, base_offset, leader.log.log_start_offset)
        if acks is Acks.LEADER:
            self._promised(leader, end)
        waits = acks is Acks.ALL or self._fsync
        return result, end if waits else None

    def _out_of_sequence(
        self, part: ProducePartition, check: SequenceCheck, acks: Acks, leader: LeaderReplica
    ) -> tuple[ProduceResult, Offset | None]:
        if check.verdict is SequenceVerdict.DUPLICATE:
            assert check.first is not None
            # Answered like its first append, and no sooner: that one may yet be truncated (TR20).
            end = Offset(check.first.last_offset + 1)
            return self._appended(part, check.first.first_offset, end, acks, leader)
        return self._refused(part, _sequence_refusal(part, check)), None

    def _not_led(self, tp: TopicPartition) -> ProduceResult:
        state = self._state
        refusal = state.not_leader(tp) if tp in state.images else state.unknown(tp)
        definite = Refusal(refusal.code, refusal.message, _NOT_APPENDED)
        return ProduceResult(tp, refusal=definite, leader_hint=state.hint(tp))

    def _too_large(self, part: ProducePartition) -> Refusal | None:
        limit = self._state.batch_limits.get(part.tp.topic_id)
        if limit is None or part.header.size_bytes <= limit:
            return None
        if limit == NOTHING:
            return not_for_clients(self._state.topic_names[part.tp.topic_id], _NOT_APPENDED)
        size = part.header.size_bytes
        message = f"batch size {size} is above the topic's max.message.bytes={limit}; send smaller batches"
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, message, _NOT_APPENDED)

    def _too_few(self, leader: LeaderReplica) -> Refusal:
        return Refusal(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the ISR {list(leader.isr.committed)} has fewer than min.insync.replicas={leader.image.min_isr} "
            "members; acks=all is refused until replicas return",
            _NOT_APPENDED,
        )

    def _refused(self, part: ProducePartition, refusal: Refusal) -> ProduceResult:
        if refusal.outcome is None:
            refusal = Refusal(refusal.code, refusal.message, _NOT_APPENDED)
        return ProduceResult(part.tp, refusal=refusal)

    def hw_rose(self, leader: LeaderReplica, out: list[Effect]) -> None:
        """Acknowledge acks=all up to the HW; below min ISR it counts as appended, not acknowledged (M47)."""
        calls = self.purgatory.reached(leader.log.tp, Acks.ALL, leader.log.hw)
        for call in calls:
            if leader.is_under_min_isr:
                refusal = Refusal(
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    "the ISR fell below min.insync.replicas after the append; retry with the same sequence",
                    _MAY_APPEAR,
                )
                call.refuse(leader.log.tp, refusal)
            else:
                leader.acked_offset = max(leader.acked_offset, leader.log.hw)
            self._left(call, leader.log.tp, out)

    def _promised(self, leader: LeaderReplica, end: Offset) -> None:
        """acks=1 up to ``end``: acknowledged now, or when it is durable here."""
        if self._fsync:
            self._unsettled.setdefault(leader.log.tp, deque()).append(end)
        else:
            leader.acked_offset = max(leader.acked_offset, end)

    def flushed(self, leader: LeaderReplica, out: list[Effect]) -> None:
        """Acknowledge acks=1 up to the leader's own durable LEO."""
        unsettled = self._unsettled.get(leader.log.tp)
        while unsettled and unsettled[0] <= leader.log.vote:
            leader.acked_offset = max(leader.acked_offset, unsettled.popleft())
        for call in self.purgatory.reached(leader.log.tp, Acks.LEADER, leader.log.vote):
            self._left(call, leader.log.tp, out)

    def resigned(self, tp: TopicPartition, out: list[Effect]) -> None:
        """This node no longer leads ``tp``: waiting callers are answered at once (T15)."""
        self._unsettled.pop(tp, None)
        state = self._state
        refusal = state.not_leader(tp) if tp in state.images else state.unknown(tp)
        indefinite = Refusal(refusal.code, refusal.message, _MAY_APPEAR)
        for call in self.purgatory.waiting_in(tp):
            call.refuse(tp, indefinite)
            self._left(call, tp, out)

    def ticked(self, now_ms: int, out: list[Effect]) -> None:
        """Answer the calls that waited too long: appended, not yet committed."""
        for call in self.purgatory.expired(now_ms):
            self._answer(call, out)

    def _left(self, call: ParkedProduce, tp: TopicPartition, out: list[Effect]) -> None:
        call.waiting.pop(tp, None)
        if not call.waiting:
            self._answer(call, out)

    def _answer(self, call: ParkedProduce, out: list[Effect]) -> None:
        self.purgatory.release(call.request_id)
        out.append(AnswerProduce(call.request_id, tuple(call.results)))


def _sequence_refusal(part: ProducePartition, check: SequenceCheck) -> Refusal:
    sent = part.header.producer
    assert sent is not None, "a batch without a producer has no sequence to refuse"
    if check.verdict is SequenceVerdict.FENCED:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer_epoch {sent.producer_epoch} of producer {sent.producer_id} is older than one already seen",
            _NOT_APPENDED,
        )
    if check.verdict is SequenceVerdict.TOO_OLD:
        return Refusal(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"base_sequence {sent.base_sequence} of producer {sent.producer_id} is older than its last five "
            f"batches (next is {check.expected_sequence}); it was appended before",
            _MAY_APPEAR,
        )
    if check.verdict is SequenceVerdict.UNKNOWN:
        return Refusal(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"producer {sent.producer_id} is not known here and what is below the log start is deleted: an earlier "
            f"attempt of base_sequence {sent.base_sequence} may be among it; begin a new producer id",
            _NOT_APPENDED,
        )
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"base_sequence {sent.base_sequence} of producer {sent.producer_id} is not the next, {check.expected_sequence}",
        _NOT_APPENDED,
    )


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
                # The HW does not move and calls time out: forget those that have left. A sorted list is a heap.
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
