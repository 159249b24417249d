"""Decides produce requests: refused, appended and answered, or appended and parked in the purgatory.

A transactional batch also waits, before its append, until its transaction is known to include the partition (X9). A
marker is appended like a batch with acks=all, but by its own rules (X11).

Invariants: the sequence check precedes the min-ISR check, so a duplicate is never NOT_APPENDED (M61);
acks=all is refused below min ISR before anything is written (M47); an acknowledgement of acks=all means
HW >= last offset + 1 (M46), one of acks=1 under ``fsync`` the leader's own commit (M55). What is parked leaves exactly
once, by its offset, its deadline, a change of leader or its caller's going away; its number and bytes are bounded.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from strandline.core.coordinator.internal_topics import not_for_clients
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.groups.messages import TransactionMarked
from strandline.core.log import producers as log_producers
from strandline.core.log.effects import AnswerProduce, Effect, SendAddPartitions
from strandline.core.log.events import AddPartitionsAnswered, ProduceArrived
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.state import NOTHING, NodeState
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.serving.produce_checks import ParkedProduce, UnverifiedBatch, Verification
from strandline.core.types import (
    NEVER_MS,
    OF_TRANSACTIONS,
    TRANSACTIONAL_BIT,
    Acks,
    Durability,
    Marker,
    Offset,
    TopicPartition,
)

_NOT_APPENDED = Outcome.NOT_APPENDED
_MAY_APPEAR = Outcome.MAY_APPEAR

_WEAK_ACKS = Refusal(
    ErrorCode.INVALID_REQUIRED_ACKS, "a transactional batch must be sent with acks=-1 (all in-sync replicas)"
)
_NO_TRANSACTIONAL_ID = Refusal(
    ErrorCode.INVALID_REQUEST, "a transactional batch needs transactional_id in its request, and a producer id"
)
_NAMED_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "a request with transactional batches must name each partition once")
_OUTSIDE = Refusal(
    ErrorCode.INVALID_TXN_STATE,
    "the producer has a transaction open here, and the batch is not part of it; commit or abort it first",
)

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


class TakesMarkers(Protocol):
    """The coordinators of this node, as far as markers concern them."""

    def takes_markers(self, leader: LeaderReplica) -> bool:
        """Whether a marker for this partition is handled by its coordinator."""
        ...

    def marked(
        self, leader: LeaderReplica, request: TransactionMarked, now_ms: int, out: list[Effect]
    ) -> tuple[Offset | Refusal, Offset | None]:
        """Take one: (the offset that the HW must reach, or why it is refused; the LEO from before if that grew)."""
        ...


class ProduceServing:
    """Produce requests of one node. Appends to the logs of ``state.leaders``; owns the purgatory."""

    def __init__(self, state: NodeState, coordinators: TakesMarkers | None = None) -> None:
        """``coordinators``: take the markers that are theirs; None: no partition of this node has a coordinator."""
        self._state = state
        self._coordinators = coordinators
        self.purgatory = Purgatory(state.timings.purgatory_max_entries, state.timings.purgatory_max_bytes)
        self._verification: Verification[UnverifiedBatch] = Verification()
        self._fsync = state.rules.durability is Durability.FSYNC
        # Ends of the appends with acks=1 that are not durable yet, by partition, in order.
        self._unsettled: dict[TopicPartition, deque[Offset]] = {}

    def arrived(self, event: ProduceArrived, out: list[Effect]) -> dict[TopicPartition, Offset]:
        """Append what may be appended; park what must wait. Returns, for each log that grew, its LEO before this
        request; the caller then raises HWs and wakes fetches, so a call that is acknowledged at once leaves through
        `reached`."""
        grown: dict[TopicPartition, Offset] = {}
        # Before anything is appended: afterwards a batch could no longer be refused as NOT_APPENDED.
        if self.purgatory.is_full:
            out.append(AnswerProduce(event.request_id, tuple(self._refused(p, FULL) for p in event.partitions)))
            return grown
        call = ParkedProduce(event.request_id, event.acks, event.now_ms + event.timeout_ms, event.transactional_id)
        required: dict[TopicPartition, Offset] = {}
        for index, part in enumerate(event.partitions):
            result, offset = self._append(part, call, index, event.now_ms, grown, out)
            call.results.append(result)
            if offset is not None:
                call.waits_at(part.tp, index)
                call.size_bytes += part.header.size_bytes
                required[part.tp] = max(offset, required.get(part.tp, offset))
            elif index in call.unverified:
                call.size_bytes += part.header.size_bytes
        if call.waiting:
            call.size_bytes = max(call.size_bytes, event.size_bytes)
            self.purgatory.park(call, required)
        else:
            out.append(AnswerProduce(event.request_id, tuple(call.results)))
        return grown

    def _append(
        self,
        part: ProducePartition,
        call: ParkedProduce,
        index: int,
        now_ms: int,
        grown: dict[TopicPartition, Offset],
        out: list[Effect],
        *,
        verified: bool = False,
    ) -> tuple[ProduceResult, Offset | None]:
        """One partition: its result, and the offset the result must wait for (None: it is final, or unverified)."""
        acks = call.acks
        leader = self._state.leaders.get(part.tp)
        if leader is None:
            return self._not_led(part.tp), None
        invalid = part.invalid or self._too_large(part)
        if invalid is not None:
            return self._refused(part, invalid), None
        producers = leader.log.producers
        # Looked at without a call: of most nodes no batch concerns a transaction.
        concerns_transactions = (
            part.header.attributes & OF_TRANSACTIONS or producers.transactions.open or self._verification.waiting
        )
        if concerns_transactions:
            if part.header.marker is not None and leader.is_coordinator:
                return self._mark_coordinator(part, part.header.marker, leader, now_ms, grown, out)
            settled = self._before_sequence(part, call, index, leader)
            if settled is not None:
                return settled
        if part.header.marker is None:
            # Before the check of min ISR: a duplicate is in the log already, so NOT_APPENDED would be untrue (M61).
            check = producers.check(part.header, log_start_offset=leader.log.log_start_offset)
            if check.verdict is not log_producers.SequenceVerdict.NEXT:
                return self._out_of_sequence(part, check, acks, leader)
        if acks is Acks.ALL and leader.is_under_min_isr:
            return self._refused(part, self._too_few(leader)), None
        if concerns_transactions and not verified:
            waits = self._before_append(part, call, index, producers, out)
            if waits is not None:
                return waits, None
        grown.setdefault(part.tp, leader.log.leo)
        base_offset = leader.log.append_as_leader(part.header, part.payload, leader.image.leader_epoch, out)
        return self._appended(part, base_offset, leader.log.leo, acks, leader)

    def _before_sequence(
        self, part: ProducePartition, call: ParkedProduce, index: int, leader: LeaderReplica
    ) -> tuple[ProduceResult, Offset | None] | None:
        """What is settled before the sequence of a batch can be judged, as `_append` returns it; None if nothing is."""
        tp, sent = part.tp, part.header.producer
        if part.header.marker is not None:
            return self._judge_marker(part, part.header.marker, leader)
        if part.header.attributes & TRANSACTIONAL_BIT:
            if call.acks is not Acks.ALL:
                return self._refused(part, _WEAK_ACKS), None
            if sent is None or call.transactional_id is None:
                return self._refused(part, _NO_TRANSACTIONAL_ID), None
        if tp in call.waiting and call.unverified:
            return self._refused(part, _NAMED_TWICE), None
        if sent is not None and self._verification.holds(tp, sent.producer_id):
            return self._wait(part, call, index, sent.producer_id), None
        return None

    def _before_append(
        self,
        part: ProducePartition,
        call: ParkedProduce,
        index: int,
        producers: log_producers.ProducerLedger,
        out: list[Effect],
    ) -> ProduceResult | None:
        """What the transactions of a batch's producer say about it, whose sequence is right; None: append it."""
        tp, sent = part.tp, part.header.producer
        if sent is None or part.header.marker is not None:
            return None
        is_open = sent.producer_id in producers.transactions.open
        if not part.header.attributes & TRANSACTIONAL_BIT:
            return self._refused(part, _OUTSIDE) if is_open else None
        # The coordinator added the partition when the transaction's first batch came (X9).
        if is_open and producers.newest_epoch(sent.producer_id) == sent.producer_epoch:
            return None
        if tp in call.waiting:
            return self._refused(part, _NAMED_TWICE)
        assert call.transactional_id is not None, "a transactional batch without an id was refused before"
        correlation_id = self._state.next_correlation_id()
        self._verification.ask(correlation_id, tp, sent.producer_id)
        out.append(SendAddPartitions(correlation_id, call.transactional_id, sent.producer_id, sent.producer_epoch, tp))
        return self._wait(part, call, index, sent.producer_id)

    def _wait(self, part: ProducePartition, call: ParkedProduce, index: int, producer_id: int) -> ProduceResult:
        if part.tp in call.waiting:
            return self._refused(part, _NAMED_TWICE)
        self._verification.wait(part.tp, producer_id, UnverifiedBatch(call, index, part))
        call.holds_unverified(part.tp, index)
        return ProduceResult(part.tp)

    def verified(
        self, event: AddPartitionsAnswered, out: list[Effect]
    ) -> tuple[dict[TopicPartition, Offset], set[TopicPartition]]:
        """The coordinator answered. Returns what `arrived` returns, and the partitions whose batches were looked at."""
        grown: dict[TopicPartition, Offset] = {}
        batches = self._verification.answered(event.correlation_id)
        asked_epoch = batches[0].producer_epoch if batches else None
        for number, (call, index, part) in enumerate(batches):
            if not self.purgatory.holds(call):
                continue
            # Everything is checked again: if a marker came in between, the batch would open a transaction that has
            # ended, and no marker would end it again (X10).
            call.takes_up(part.tp, index)
            if event.refusal is not None and batches[number].producer_epoch == asked_epoch:
                result, offset = self._refused(part, log_producers.as_producers_hear(event.refusal)), None
            else:
                # Of this one alone: a later one may be of a later transaction.
                result, offset = self._append(part, call, index, event.now_ms, grown, out, verified=number == 0)
            call.results[index] = result
            if offset is not None:
                call.waits_at(part.tp, index)
                self.purgatory.also_waits(call, part.tp, offset)
            elif not call.waiting:
                self._answer(call, out)
        return grown, {part.tp for _, _, part in batches}

    def _mark_coordinator(
        self,
        part: ProducePartition,
        marker: Marker,
        leader: LeaderReplica,
        now_ms: int,
        grown: dict[TopicPartition, Offset],
        out: list[Effect],
    ) -> tuple[ProduceResult, Offset | None]:
        """A marker for a coordinator's partition becomes records of its own, and waits for them (X16)."""
        sent = part.header.producer
        assert sent is not None, "a marker names its producer"
        if self._coordinators is None or not self._coordinators.takes_markers(leader):
            return self._refused(part, not_for_clients(leader.log.topic, _NOT_APPENDED)), None
        taken, leo_before = self._coordinators.marked(leader, TransactionMarked(sent, marker), now_ms, out)
        if leo_before is not None:
            grown.setdefault(part.tp, leo_before)
        if isinstance(taken, Refusal):
            return self._refused(part, taken), None
        return ProduceResult(part.tp, None, leader.log.log_start_offset), taken

    def _judge_marker(
        self, part: ProducePartition, marker: Marker, leader: LeaderReplica
    ) -> tuple[ProduceResult, Offset | None] | None:
        """The result of a marker that is not appended (X11); None to append it."""
        sent, producers = part.header.producer, leader.log.producers
        assert sent is not None, "a marker names its producer"
        known_epoch = producers.newest_epoch(sent.producer_id)
        verdict, last = producers.transactions.judge(sent.producer_id, sent.producer_epoch, marker, known_epoch)
        if verdict is log_producers.MarkerVerdict.APPEND:
            return None
        if verdict is log_producers.MarkerVerdict.KNOWN:
            assert last is not None, "a copy of no marker"
            # The first copy may still be lost with this leader, so this one is answered no sooner.
            return self._appended(part, last.offset, Offset(last.offset + 1), Acks.ALL, leader)
        return self._refused(part, log_producers.marker_refusal(verdict, sent, marker)), None

    def _appended(
        self, part: ProducePartition, base_offset: Offset, end: Offset, acks: Acks, leader: LeaderReplica
    ) -> tuple[ProduceResult, Offset | None]:
        if acks is Acks.NONE:
            return ProduceResult(part.tp), None
        result = ProduceResult(part.tp, base_offset, leader.log.log_start_offset)
        if acks is Acks.LEADER:
            self._promised(leader, end)
        # With `fsync` an acknowledgement of acks=1 means durable, too: on the leader (M55).
        waits = acks is Acks.ALL or self._fsync
        return result, end if waits else None

    def _out_of_sequence(
        self, part: ProducePartition, check: log_producers.SequenceCheck, acks: Acks, leader: LeaderReplica
    ) -> tuple[ProduceResult, Offset | None]:
        if check.verdict is log_producers.SequenceVerdict.DUPLICATE:
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
        if limit == NOTHING and not (part.header.marker is not None and self._state.leaders[part.tp].is_coordinator):
            return not_for_clients(self._state.topic_names[part.tp.topic_id], _NOT_APPENDED)
        if part.header.marker is not None:
            # No setting may keep a transaction open indefinitely.
            return None
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
            # As in Kafka: it is committed, but only a leader with min ISR members acknowledges it (M47, I12).
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
        # The next leader may have the records, and commit them.
        indefinite = Refusal(refusal.code, refusal.message, _MAY_APPEAR)
        calls = self.purgatory.waiting_in(tp)
        calls += [batch.call for batch in self._verification.resigned(tp)]
        for call in calls:
            if self.purgatory.holds(call) and tp in call.waiting:
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


def _sequence_refusal(part: ProducePartition, check: log_producers.SequenceCheck) -> Refusal:
    sent = part.header.producer
    assert sent is not None, "a batch without a producer has no sequence to refuse"
    if check.verdict is log_producers.SequenceVerdict.FENCED:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer_epoch {sent.producer_epoch} of producer {sent.producer_id} is older than one already seen",
            _NOT_APPENDED,
        )
    if check.verdict is log_producers.SequenceVerdict.TOO_OLD:
        return Refusal(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"base_sequence {sent.base_sequence} of producer {sent.producer_id} is older than its last five "
            f"batches (next is {check.expected_sequence}); it was appended before",
            _MAY_APPEAR,
        )
    if check.verdict is log_producers.SequenceVerdict.UNKNOWN:
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
                # The HW does not move and calls time out: forget the answered ones. A sorted list is a heap.
                heap[:] = sorted(entry for entry in heap if entry[2] in self._parked)

    def holds(self, call: ParkedProduce) -> bool:
        """Whether the call still waits."""
        return self._parked.get(call.request_id) is call

    def also_waits(self, call: ParkedProduce, tp: TopicPartition, offset: Offset) -> None:
        """A parked call appended a batch in ``tp`` late, and waits for its end."""
        heappush(self._by_offset.setdefault((tp, call.acks), []), (offset, next(self._tickets), call.request_id))

    def reached(self, tp: TopicPartition, acks: Acks, offset: Offset) -> list[ParkedProduce]:
        """The calls with ``acks`` that wait in ``tp`` for an offset <= ``offset``; they wait there no longer."""
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

    @property
    def next_deadline_ms(self) -> int:
        """The first deadline, also one of a call that is over since."""
        return self._by_deadline[0][0] if self._by_deadline else NEVER_MS

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
        """The call was answered, or its caller went away."""
        call = self._parked.pop(request_id, None)
        if call is not None:
            self.size_bytes -= call.size_bytes
        if len(self._by_deadline) > 64 and len(self._by_deadline) > 4 * len(self._parked):
            self._by_deadline = [entry for entry in self._by_deadline if entry[1] in self._parked]
            self._by_deadline.sort()
