"""Answers fetches: at once, when enough bytes have arrived, or when the wait is over.

Invariants: a replica's fetch moves the remote LEO only after every check passed (M32); an immediate answer carries the
HW from before that move, a parked one is read again on completion (D1, M23); a consumer never gets a record at or above
the HW of the replica it asked (M9), and if it reads committed records, none at or above that replica's LSO (X14, X15).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import AnswerFetch, Effect
from strandline.core.log.events import FetchArrived
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.move_throttle import MoveThrottle, rate_of
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.log.state import NodeState
from strandline.core.messages import FetchPartition, FetchRequest, FetchResult, ReadRange, ReplicaState
from strandline.core.serving.parked_fetches import News, ParkedFetch, ParkedFetches
from strandline.core.types import AbortedTransaction, NodeId, Offset, TopicPartition


class Counted(NamedTuple):
    """A replica's fetch of one partition that counts as its acknowledgement."""

    leader: LeaderReplica
    replica: NodeId
    leo_changed: bool


class Received(NamedTuple):
    """A fetch that was looked at and not answered yet."""

    fetch: ParkedFetch
    results: list[FetchResult]
    counted: list[Counted]


class FetchServing:
    """Fetch requests of one node, from replicas and consumers, on unary calls and on streams."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._checked = state.truncation.checked
        self.parked = ParkedFetches()
        self._throttle = MoveThrottle()
        self.expired_total = 0

    def received(self, event: FetchArrived, out: list[Effect]) -> Received:
        """Look at a fetch and count it. What follows from counting comes before its answer, which is `answer`."""
        request = event.request
        if event.stream_id is not None:
            self._replace(event.stream_id, [part.tp for part in request.partitions], out)
        counted: list[Counted] = []
        results = [
            self._receive(part, request, event.at_follower, event.now_ms, counted) for part in request.partitions
        ]
        fetch = ParkedFetch(
            request_id=event.request_id,
            replica=request.replica,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            max_wait_ms=request.max_wait_ms,
            deadline_ms=event.now_ms + request.max_wait_ms,
            stream_id=event.stream_id,
            at_follower=event.at_follower,
            read_committed=request.read_committed,
            partitions={part.tp: part for part in request.partitions},
        )
        return Received(fetch, results, counted)

    def answer(self, received: Received, out: list[Effect]) -> None:
        """Answer a fetch that was looked at, or park it."""
        fetch, results, _ = received
        if fetch.max_wait_ms <= 0 or not fetch.partitions:
            self._answer(fetch, results, out)
            return
        ready = self._ready(fetch, results)
        if ready:
            self._answer(fetch, ready, out)
        if fetch.partitions:
            self.parked.park(fetch)

    def _receive(
        self, part: FetchPartition, request: FetchRequest, at_follower: bool, now_ms: int, counted: list[Counted]
    ) -> FetchResult:
        """One partition on arrival: check, snapshot the HW, count, and say what could be given now."""
        replica = request.replica
        # Before the fetch is counted, so an immediate answer has the HW from before it, as Kafka's has (D1).
        result = self._look(part, replica, at_follower, request.read_committed, now_ms, fresh=True)
        leader = self._state.leaders.get(part.tp)
        # A replica that diverges will cut what it claims to hold, so nothing of its fetch may count (M32, TR12).
        if replica is None or leader is None or result.refusal is not None or result.diverging is not None:
            return result
        if leader.only_reconciles(replica):
            return result._replace(confirms_lineage=True)
        counted.append(Counted(leader, replica.node_id, leader.observe_fetch(part, replica, now_ms)))
        return result

    def _look(
        self,
        part: FetchPartition,
        replica: ReplicaState | None,
        at_follower: bool,
        read_committed: bool,
        now_ms: int,
        *,
        fresh: bool,
    ) -> FetchResult:
        """What could be answered for this partition now. ``fresh``: the fetch has not been counted yet."""
        refusal = self._check(part, replica, at_follower)
        if refusal is not None:
            return self._refused(part.tp, refusal)
        if at_follower:
            return self._look_at_follower(part, read_committed)
        leader = self._state.leaders[part.tp]
        if replica is not None:
            refusal = leader.check_replica(part, replica) if fresh else leader.check_assigned(part.tp, replica.node_id)
            if refusal is not None:
                return self._refused(part.tp, refusal)
        return self._look_at_leader(part, leader, replica, read_committed, now_ms, fresh=fresh)

    def _look_at_leader(
        self,
        part: FetchPartition,
        leader: LeaderReplica,
        replica: ReplicaState | None,
        read_committed: bool,
        now_ms: int,
        *,
        fresh: bool,
    ) -> FetchResult:
        log = leader.log
        found = leader.diverging(part, by_replica=replica is not None)
        if isinstance(found, Refusal):
            return self._refused(part.tp, found)
        if found is not None:
            return FetchResult(part.tp, log.hw, log.log_start_offset, diverging=found)
        # Not before the divergence check: a follower with a longer tail of another lineage is honest, and must be sent
        # the offset to cut at (M70).
        if replica is not None and fresh and (refusal := leader.check_claim(part, replica.node_id)):
            return self._refused(part.tp, refusal)
        if replica is None:
            return self._to_consumer(part, log, log.hw, read_committed)
        is_held = leader.image.adding and self._is_held(part, leader, replica.node_id, now_ms)
        read = None if is_held else self._range(part, log.leo)
        return FetchResult(part.tp, log.hw, log.log_start_offset, read, barrier=leader.barrier)

    def _is_held(self, part: FetchPartition, leader: LeaderReplica, node_id: NodeId, now_ms: int) -> bool:
        # Within a batch of the HW nothing waits: a throttle must not keep a replica out of the ISR (C80).
        rate = rate_of(leader.image, node_id, leader.isr.maximal)
        is_held = (
            rate is not None
            and not leader.log.is_near_hw(part.fetch_offset)
            and self._throttle.holds(part.tp, rate, now_ms)
        )
        return leader.progress[node_id].held.note(is_held, now_ms)

    def sent(self, leader: LeaderReplica, node_id: NodeId, size_bytes: int, now_ms: int) -> None:
        """An answer carried so much of this partition to this replica."""
        rate = rate_of(leader.image, node_id, leader.isr.maximal) if leader.image.adding else None
        if rate is not None:
            self._throttle.passed(rate, size_bytes, now_ms)
            self._release(now_ms)

    def _release(self, now_ms: int) -> None:
        for tp in self._throttle.released(now_ms):
            self.parked.wake_replicas(tp)

    @property
    def due_ms(self) -> int:
        """When a parked fetch is looked at again if nothing happens before."""
        return min(self.parked.next_deadline_ms, self._throttle.due_ms)

    def _to_consumer(self, part: FetchPartition, log: ReplicaLog, hw: Offset, read_committed: bool) -> FetchResult:
        """What a consumer may read, who is shown ``hw`` (X14)."""
        transactions = log.producers.transactions
        lso = log.lso if transactions.open or transactions.ended else hw
        read = self._range(part, lso if read_committed else hw)
        aborted: tuple[AbortedTransaction, ...] = ()
        if read_committed and read is not None:
            aborted = transactions.aborted_between(read.start, read.end)
        return FetchResult(part.tp, hw, log.log_start_offset, read, last_stable_offset=lso, aborted=aborted)

    def _look_at_follower(self, part: FetchPartition, read_committed: bool) -> FetchResult:
        log = self._state.logs[part.tp]
        if part.fetch_offset < log.log_start_offset:
            return self._refused(
                part.tp,
                Refusal(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"fetch_offset {part.fetch_offset} is below the log start {log.log_start_offset}; ask ListOffsets",
                ),
            )
        shown = log.expose_hw()
        if shown is None:
            if part.fetch_offset < log.hw:
                # Committed records are served, but not the log end, which would appear to go back (I13).
                below = self._to_consumer(part, log, log.hw, read_committed)
                return below._replace(high_watermark=None, last_stable_offset=None)
            return self._refused(
                part.tp,
                Refusal(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"this follower's HW {log.hw} is below the {log.exposed_hw} it has shown; wait, or ask the leader",
                ),
            )
        # Not OFFSET_OUT_OF_RANGE, by which a consumer would reset its position although the leader may have the record
        # (M1, KIP-392).
        if part.fetch_offset > shown:
            return self._refused(
                part.tp,
                Refusal(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"fetch_offset {part.fetch_offset} is above this follower's HW {log.hw}; wait, or ask the leader",
                ),
            )
        return self._to_consumer(part, log, shown, read_committed)

    def _range(self, part: FetchPartition, end: Offset) -> ReadRange | None:
        if part.fetch_offset >= end:
            return None
        cap = self._state.timings.replica_fetch_response_max_bytes
        return ReadRange(part.fetch_offset, end, min(part.max_bytes, cap))

    def _refused(self, tp: TopicPartition, refusal: Refusal) -> FetchResult:
        is_outside = refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE
        log_start = self._state.logs[tp].log_start_offset if is_outside else None
        return FetchResult(tp, log_start_offset=log_start, refusal=refusal, leader_hint=self._state.hint(tp))

    def _check(self, part: FetchPartition, replica: ReplicaState | None, at_follower: bool) -> Refusal | None:
        """Shape, existence, leader epoch, role: in this order (T6, T10)."""
        refusal = self._check_shape(part, replica, at_follower)
        if refusal is not None:
            return refusal
        state = self._state
        if part.tp not in state.images:
            return state.unknown(part.tp)
        refusal = state.check_asker_epoch(part.tp, part.current_leader_epoch, by_replica=replica is not None)
        if refusal is not None:
            return refusal
        if at_follower and part.tp not in state.followers:
            return Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"node {state.node_id} does not follow this partition; ask LeaderService or another replica",
            )
        if not at_follower and part.tp not in state.leaders:
            return state.not_leader(part.tp)
        return None

    def _check_shape(self, part: FetchPartition, replica: ReplicaState | None, at_follower: bool) -> Refusal | None:
        if part.fetch_offset < 0:
            return _invalid(f"fetch_offset is {part.fetch_offset}; it must be 0 or more")
        if replica is None:
            return None
        if at_follower:
            return _invalid("replica_state is set; replicas fetch from LeaderService only")
        # Without it a follower of an older epoch would be counted, although it will truncate (TR4, TR5).
        if part.current_leader_epoch is None:
            return _invalid("current_leader_epoch is absent; a replica must say which leader it follows")
        if self._checked and part.last_fetched_epoch is None and part.fetch_offset != part.log_start_offset:
            return _invalid(
                f"last_fetched_epoch is absent at fetch_offset {part.fetch_offset}; a replica may omit it "
                "only at its own log_start_offset, with an empty log"
            )
        return None

    def _ready(self, fetch: ParkedFetch, results: list[FetchResult]) -> list[FetchResult]:
        """What of ``results`` is to be answered now: nothing, or all of a call, or a stream's ripe part (M22)."""
        if fetch.min_bytes <= 0:
            return results
        ripe: list[FetchResult] = []
        only_bytes = True
        for result in results:
            # Refusal, divergence and proof of lineage are needed even without records.
            if result.refusal is not None or result.diverging is not None or result.confirms_lineage:
                only_bytes = False
            elif result.read is None:
                if result.barrier is None or result.barrier == fetch.partitions[result.tp].barrier_seen:
                    continue
                # A read barrier that the replica has not repeated (G10).
                only_bytes = False
            ripe.append(result)
        if not ripe or (only_bytes and fetch.min_bytes > 1 and self._bytes(ripe) < fetch.min_bytes):
            return []
        return ripe if fetch.stream_id is not None else results

    def _bytes(self, results: Iterable[FetchResult]) -> int:
        logs = self._state.logs
        return sum(logs[r.tp].sizes.bytes_between(r.read.start, r.read.end) for r in results if r.read is not None)

    def meet_append(self, leader: LeaderReplica, leo_before: Offset, now_ms: int) -> None:
        """An append found these replicas parked at the log end: they were caught up until now (M43)."""
        for fetch in self.parked.at(leader.log.tp):
            if fetch.replica is not None:
                follower = leader.progress.get(fetch.replica.node_id)
                if follower is not None:
                    follower.met_by_append(leo_before, now_ms)

    def complete_woken(self, now_ms: int, out: list[Effect]) -> None:
        """End of a step: read again what was woken, and answer what is ripe."""
        while woken := self.parked.take_woken():
            for fetch, tps in woken:
                # An answer before it in this loop may have ended it.
                if self.parked.get(fetch.request_id) is fetch:
                    self._try_complete(fetch, tps, now_ms, out)

    def _try_complete(
        self, fetch: ParkedFetch, woken: Iterable[TopicPartition], now_ms: int, out: list[Effect]
    ) -> None:
        whole = fetch.stream_id is None or fetch.min_bytes > 1
        parts = fetch.partitions.values() if whole else [fetch.partitions[tp] for tp in woken if tp in fetch.partitions]
        ready = self._ready(fetch, self._read_again(fetch, parts, now_ms))
        if ready:
            self._answer(fetch, ready, out)

    def _read_again(self, fetch: ParkedFetch, parts: Iterable[FetchPartition], now_ms: int) -> list[FetchResult]:
        replica, at_follower, read_committed = fetch.replica, fetch.at_follower, fetch.read_committed
        return [self._look(part, replica, at_follower, read_committed, now_ms, fresh=False) for part in parts]

    def ticked(self, now_ms: int, out: list[Effect]) -> None:
        """Complete the fetches whose wait is over; a stream is only sent what it does not know yet."""
        self._release(now_ms)
        for fetch in self.parked.due(now_ms):
            stream_id = fetch.stream_id
            parts = fetch.partitions.values() if stream_id is None else self._unlike(fetch)
            results = self._read_again(fetch, parts, now_ms)
            if stream_id is not None:
                reported = self.parked.was_reported
                results = [r for r in results if not reported(stream_id, r.tp, self._news(r))]
            if results or stream_id is None:
                self.expired_total += 1
                self._answer(fetch, results, out)
            if fetch.partitions:
                self.parked.postpone(fetch, now_ms)

    def _unlike(self, fetch: ParkedFetch) -> list[FetchPartition]:
        """The partitions whose stream may not have been sent what is true now."""
        # Of most nothing has changed since, and to look at one in full costs several times as much as to see that.
        parts = fetch.partitions
        if fetch.at_follower:
            return list(parts.values())
        assert fetch.stream_id is not None, "only a stream remembers what it was sent"
        leaders, sent = self._state.leaders, self.parked.reported_on(fetch.stream_id)
        node_id = fetch.replica.node_id if fetch.replica else None
        return [
            part
            for tp, part in parts.items()
            if (leader := leaders.get(tp)) is None
            or (node_id is not None and node_id not in leader.progress)
            or sent.get(tp) != (leader.image.leader_epoch, leader.log.hw, leader.log.log_start_offset)
        ]

    def _answer(self, fetch: ParkedFetch, results: list[FetchResult], out: list[Effect]) -> None:
        self.parked.remove(fetch, [r.tp for r in results])
        if fetch.stream_id is not None:
            for r in results:
                self.parked.tell(fetch.stream_id, r.tp, self._news(r))
        replica = fetch.replica.node_id if fetch.replica else None
        done = not fetch.partitions
        out.append(AnswerFetch(fetch.request_id, tuple(results), fetch.max_bytes, replica, done))

    def _news(self, result: FetchResult) -> News | None:
        """What a follower takes over from this answer even without records; nothing from an error or a divergence."""
        if result.refusal is not None or result.diverging is not None:
            return None
        leader_epoch = self._state.images[result.tp].leader_epoch
        return News(leader_epoch, result.high_watermark, result.log_start_offset)

    def forget(self, stream_id: int, tps: Iterable[TopicPartition], out: list[Effect]) -> None:
        """These partitions are no longer wanted on a stream; fetches left empty are closed."""
        self._replace(stream_id, tps, out)
        self.parked.forget(stream_id, tps)

    def _replace(self, stream_id: int, tps: Iterable[TopicPartition], out: list[Effect]) -> None:
        for fetch in self.parked.replace(stream_id, tps):
            replica = fetch.replica.node_id if fetch.replica else None
            out.append(AnswerFetch(fetch.request_id, (), fetch.max_bytes, replica))

    def end_stream(self, stream_id: int) -> None:
        """The stream broke or was closed."""
        self.parked.end_stream(stream_id)

    def call_gone(self, request_id: int) -> None:
        """The caller of a unary fetch went away."""
        fetch = self.parked.get(request_id)
        if fetch is not None:
            self.parked.remove(fetch, tuple(fetch.partitions))


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
