"""One led partition of an internal topic and its state machine: loading, then active, then dropped.

Invariants: the machine's state is the fold of the log, for a record is applied exactly when it is read or appended
(G3, I31); nothing is answered before what it depends on is committed (G5), nor before everything below this leader
epoch is folded and known to be committed (G6). Losing leadership drops the shard, so nothing is ever undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from strandline.core.coordinator.machine import (
    Batch,
    Context,
    Decision,
    EncodedBatch,
    MakeMachine,
    RecordCodec,
    Reports,
    TopicDirectory,
    VerifyTransaction,
)
from strandline.core.coordinator.sweep import Sweep, Table
from strandline.core.coordinator.waiting import Held, Postponed, PostponedRequests, ReadBarrier, Waiting
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.log.effects import AnswerCoordinator, Compute, Effect, Emit, ReadCoordinatorLog
from strandline.core.log.events import CoordinatorAsked, CoordinatorLogRead
from strandline.core.log.leader import LeaderReplica
from strandline.core.state_events import CoordinatorLoad, PartitionFailed
from strandline.core.types import Offset


class ShardState(StrEnum):
    """The state of a shard."""

    LOADING = "loading"
    """Its log is read."""
    UNSETTLED = "unsettled"
    """All is read, and the HW has not reached the start of this leader epoch: what was read may not be committed."""
    ACTIVE = "active"
    UNREADABLE = "unreadable"
    """Its log has records that this release cannot read; no request is answered in this leader epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLimits:
    """Bounds of a shard, in bytes and ms."""

    read_bytes: int = 128 << 10
    """How much one step of loading reads: folding it must not block the event loop for 20 ms (G7)."""
    batch_bytes: int = 32 << 10
    """Size of the batches a sweep writes."""
    sweep_step_bytes: int = 64 << 10
    """How much a sweep appends in one tick."""
    sweep_above_bytes: int = 1 << 20
    """A log of at most this size is not swept."""
    sweep_ratio: int = 4
    """A log is swept when it is so many times as large as its live records."""
    max_batch_bytes: int = 1_048_588
    """A decision whose records need a larger batch is refused."""
    max_waiting: int = 20_000
    """How many answers a shard holds, and how many postponed requests; beyond it requests are refused."""
    postponed_ms: int = 100
    """How long a request is postponed at most: other requests of its sender may wait behind it, so its sender should
    retry when the id makes no progress."""
    stalled_after_ms: int = 2_000
    """A write that is open for this long shows that the shard cannot commit, for which no member is at fault (G8)."""


def _unavailable(message: str, *, appended: bool = False) -> Refusal:
    outcome = Outcome.MAY_APPEAR if appended else Outcome.NOT_APPENDED
    return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message, outcome)


class Shard:
    """The coordinator of one partition in one leader epoch."""

    def __init__(
        self, leader: LeaderReplica, make: MakeMachine, codec: RecordCodec, limits: ShardLimits, topics: TopicDirectory
    ) -> None:
        self.leader = leader
        self._reports = Reports(leader.log.tp, leader.image.leader_epoch)
        self.machine = make(self._reports)
        self.table = Table()
        self.state = ShardState.LOADING
        self.waiting = Waiting()
        self.postponed = PostponedRequests()
        self.barrier = ReadBarrier(leader)
        self.sweep: Sweep | None = None
        self.log_bytes = 0
        """Bytes of the log from its log start, as far as read, and all that was appended since."""
        self.grown_from: Offset | None = None
        """Where the log ended before what was appended in this step; taken and reset by the owner."""
        self._codec = codec
        self.limits = limits
        self._topics = topics
        self._end = leader.epoch_start_offset
        # Since when something is not committed and the HW has not moved; None if all is committed.
        self._open_since_ms: int | None = None
        self._must_excuse = False
        self._begun_ms = 0
        # Notes of decisions, by the end of their records, in order.
        self._uncommitted: deque[tuple[Offset, object]] = deque()

    @property
    def is_serving(self) -> bool:
        """Whether requests are decided here (G6)."""
        return self.state is ShardState.ACTIVE

    @property
    def is_settled(self) -> bool:
        """Whether all that was folded while loading is known to be committed (G6)."""
        return self.leader.knows_true_hw

    def begin(self, context: Context, out: list[Effect]) -> None:
        """Begin to load. Everything below this epoch's start is read; nothing is appended until that is done."""
        self._begun_ms = context.now_ms
        self._read_from(self.leader.log.log_start_offset, context, out)

    def log_read(self, event: CoordinatorLogRead, context: Context, out: list[Effect]) -> None:
        """Fold one piece of the log and ask for the next."""
        if self.state is not ShardState.LOADING or event.leader_epoch != self.leader.image.leader_epoch:
            return
        try:
            records = self._codec.decode(event.payload)
        except Refused as error:
            self._give_up(f"the log cannot be read from {event.start} on: {error.refusal}", out)
            return
        for record, size_bytes in records:
            self.machine.apply(record)
            self.table.fold(record, size_bytes, event.start)
        self.log_bytes += event.size_bytes
        self._read_from(event.end, context, out)

    def _give_up(self, reason: str, out: list[Effect]) -> None:
        self.state, log = ShardState.UNREADABLE, self.leader.log
        out.append(Emit(log.tp, PartitionFailed(reason, log.leo, log.hw, None, self.leader.image.leader_epoch)))

    def _read_from(self, offset: Offset, context: Context, out: list[Effect]) -> None:
        if offset < self._end:
            tp, epoch = self.leader.log.tp, self.leader.image.leader_epoch
            out.append(ReadCoordinatorLog(tp, epoch, offset, self._end, self.limits.read_bytes))
            return
        self.state = ShardState.UNSETTLED
        self._maybe_serve(context, out)

    def _maybe_serve(self, context: Context, out: list[Effect]) -> None:
        if self.state is ShardState.UNSETTLED and self.is_settled:
            self.state = ShardState.ACTIVE
            # While this one loaded, no member or producer could reach its coordinator (G8, X7).
            self.machine.excuse(context)
            epoch, load_ms = self.leader.image.leader_epoch, context.now_ms - self._begun_ms
            self._reports.add(CoordinatorLoad(self.log_bytes, len(self.table.rows), load_ms, epoch))
            self._reports.leave(out)

    def asked(self, event: CoordinatorAsked, context: Context, out: list[Effect]) -> VerifyTransaction | None:
        """Decide a request, append what it needs, and answer it or hold the answer. Returns what must be verified
        first, so that nothing was done; None if the request was decided."""
        if not self.is_serving:
            self._reply(event.request_id, self._not_serving(), out)
        elif len(self.waiting) >= self.limits.max_waiting:
            self._reply(event.request_id, self._too_many(len(self.waiting)), out)
        else:
            verify = self._decide(event, context, out)
            if self.grown_from is not None:
                self._end_step(context, out)
            else:
                # Saves one call: most requests are heartbeats that write nothing.
                self._reports.leave(out)
            return verify
        return None

    def _decide(self, event: CoordinatorAsked, context: Context, out: list[Effect]) -> VerifyTransaction | None:
        decision = self.machine.decide(event.request, context)
        if decision.verify is not None:
            return decision.verify
        if decision.postponed:
            self._postpone(event, decision, out)
            return None
        refusal = self._take(decision, context, out)
        if refusal is not None:
            self._reply(event.request_id, refusal, out)
        else:
            self._answer(event, decision, out)
        return None

    def _too_many(self, count: int) -> Refusal:
        message = f"{count} requests wait for this coordinator; back off and ask again"
        return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)

    def _postpone(self, event: CoordinatorAsked, decision: Decision, out: list[Effect]) -> None:
        if len(self.postponed) >= self.limits.max_waiting:
            self._reply(event.request_id, self._too_many(len(self.postponed)), out)
            return
        assert decision.scope is not None and isinstance(decision.answer, Refusal), "a request waits for its scope"
        wait_ms = min(event.timeout_ms, self.limits.postponed_ms)
        self.postponed.hold(Postponed(event, decision.scope, decision.answer), event.now_ms + wait_ms)

    def _end_step(self, context: Context, out: list[Effect]) -> None:
        """After all input: decide what waited for it, make everything durable with one flush, and report."""
        while self.postponed.has_gone_on:
            for event in self.postponed.take_up():
                verify = self._decide(event, context, out)
                assert verify is None, "what is postponed needs no consent of another coordinator"
        self.leader.log.maybe_flush(out)
        self._reports.leave(out)

    def marked(self, request: object, context: Context, out: list[Effect]) -> Offset | Refusal:
        """Take a marker of a transaction (X16); what it writes may need more than one batch. Returns the offset that
        the HW must reach before the marker is answered, or why it is refused."""
        if not self.is_serving:
            return self._not_serving()
        decision = self.machine.decide(request, context)
        refusal = decision.answer if isinstance(decision.answer, Refusal) else None
        refusal = refusal or self._take(decision, context, out, split=True)
        self._end_step(context, out)
        if refusal is not None:
            return refusal
        # Also if nothing was written: what a first copy wrote may still be lost with this leader.
        end = self.waiting.end_for(None)
        return self.leader.log.hw if end is None else end

    def _not_serving(self) -> Refusal:
        node_id = self.leader.node_id
        if self.state is ShardState.UNREADABLE:
            return _unavailable(f"node {node_id} cannot read the state of this partition; its state events say why")
        message = f"node {node_id} loads the state of this partition; ask again"
        return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message, Outcome.NOT_APPENDED)

    def _take(self, decision: Decision, context: Context, out: list[Effect], *, split: bool = False) -> Refusal | None:
        """Append and apply what was decided, or say why that cannot be (G8). ``split``: in batches that fit (G4)."""
        # Below min ISR the HW does not move and no barrier passes: what is appended could not be answered (G8, M18).
        if (decision.batches or decision.barrier) and self.leader.is_under_min_isr:
            isr, need = list(self.leader.isr.committed), self.leader.image.min_isr
            return _unavailable(f"the ISR {isr} has fewer than min.insync.replicas={need} members; ask again")
        assert decision.batches or decision.committed is None, "a decision without records is never committed"
        if decision.batches and (refusal := self._write(decision, context, out, split=split)) is not None:
            return refusal
        if decision.taken is not None:
            self.machine.taken(decision.taken, context.now_ms)
        if decision.work is not None:
            out.append(Compute(self.leader.log.tp, self.leader.image.leader_epoch, decision.work))
        out.extend(decision.effects)
        return None

    def _write(self, decision: Decision, context: Context, out: list[Effect], *, split: bool) -> Refusal | None:
        encoded = [(batch, self._codec.encode(batch, context.unix_ms)) for batch in decision.batches]
        limit = self.limits.max_batch_bytes
        # The records of a request are one batch, in the log whole or not at all; other writes may be split (G4).
        if split:
            encoded = [part for whole in encoded for part in self._split(whole, context.unix_ms)]
        elif too_large := [each.header.size_bytes for _, each in encoded if each.header.size_bytes > limit]:
            message = f"this request needs a batch of {too_large[0]} bytes, more than {limit}; ask for less at a time"
            return Refusal(ErrorCode.MESSAGE_TOO_LARGE, message, Outcome.NOT_APPENDED)
        for batch, each in encoded:
            self._append(batch, each, context.now_ms, out)
        for scope in self._scopes_of(decision):
            self.waiting.wrote(scope, self.leader.log.leo)
            self.postponed.wrote(scope)
        if decision.committed is not None:
            self._uncommitted.append((self.leader.log.leo, decision.committed))
        return None

    def _scopes_of(self, decision: Decision) -> Sequence[str | None]:
        if decision.writes is not None:
            return decision.writes or (None,)
        assert decision.scope is not None, "a decision with records names the scope that waits for them"
        return (decision.scope,)

    def _split(self, whole: tuple[Batch, EncodedBatch], unix_ms: int) -> list[tuple[Batch, EncodedBatch]]:
        batch, encoded = whole
        if encoded.header.size_bytes <= self.limits.max_batch_bytes or len(batch) == 1:
            return [whole]
        halves = (batch[: len(batch) // 2], batch[len(batch) // 2 :])
        return [p for half in halves for p in self._split((half, self._codec.encode(half, unix_ms)), unix_ms)]

    def _append(self, batch: Batch, encoded: EncodedBatch, now_ms: int, out: list[Effect]) -> None:
        log = self.leader.log
        if self.grown_from is None:
            self.grown_from = log.leo
        epoch = self.leader.image.leader_epoch
        base = log.append_as_leader(encoded.header, encoded.payload, epoch, out, flushes=False)
        for index, (record, size_bytes) in enumerate(zip(batch, encoded.sizes, strict=True)):
            self.machine.apply(record)
            self.table.fold(record, size_bytes, Offset(base + index))
        self.log_bytes += encoded.header.size_bytes
        if self.sweep is not None:
            self.sweep.bytes_since += encoded.header.size_bytes
        if self._open_since_ms is None:
            self._open_since_ms = now_ms

    def _answer(self, event: CoordinatorAsked, decision: Decision, out: list[Effect]) -> None:
        barrier = self.barrier.wait_number(event.now_ms) if decision.barrier else None
        held = Held(
            request_id=event.request_id,
            scope=decision.scope,
            deadline_ms=event.now_ms + event.timeout_ms,
            answer=decision.answer,
            note=decision.answered,
            end=self.waiting.end_for(decision.scope),
            barrier=barrier,
            appended=bool(decision.batches),
        )
        if held.end is None and barrier is None and not self.waiting.must_queue(decision.scope):
            self._leave(held, event.now_ms, out)
            return
        self.waiting.hold(held)
        if self.barrier.has_begun:
            # One that need not be repeated has passed with that. Later ones pass by what others do.
            self.barriers_moved(event.now_ms, out)

    def _leave(self, held: Held, now_ms: int, out: list[Effect]) -> None:
        if held.note is not None:
            self.machine.answered(held.note, now_ms)
        self._reply(held.request_id, held.answer, out)

    def _reply(self, request_id: int, answer: object, out: list[Effect]) -> None:
        out.append(AnswerCoordinator(request_id, answer))

    def computed(self, result: object, context: Context, out: list[Effect]) -> None:
        """A worker's result came."""
        if self.is_serving:
            self._take(self.machine.computed(result, context), context, out, split=True)
            self._end_step(context, out)

    def heard(self, answer: object, context: Context, out: list[Effect]) -> None:
        """Another node answered a request of the machine."""
        if self.is_serving:
            for decision in self.machine.heard(answer, context):
                self._take(decision, context, out, split=True)
            self._end_step(context, out)

    def hw_rose(self, context: Context, out: list[Effect]) -> None:
        """Answer what is committed now; perhaps serve, perhaps cut off what a sweep has replaced."""
        self._maybe_serve(context, out)
        hw = self.leader.log.hw
        for held in self.waiting.released(hw, self.barrier.passed):
            self._leave(held, context.now_ms, out)
        while self._uncommitted and self._uncommitted[0][0] <= hw:
            out.extend(self.machine.committed(self._uncommitted.popleft()[1], context))
        if self._open_since_ms is not None:
            self._open_since_ms = None if hw >= self.leader.log.leo else context.now_ms
        self._maybe_trim(out)

    def barriers_moved(self, now_ms: int, out: list[Effect]) -> None:
        """A follower repeated a barrier, or one fewer has to: answer what waited for that."""
        if self.barrier.look():
            for held in self.waiting.released(self.leader.log.hw, self.barrier.passed):
                self._leave(held, now_ms, out)

    def isr_changed(self, now_ms: int, out: list[Effect]) -> None:
        """Below min ISR no barrier can pass, so callers that wait for one are refused at once (G10)."""
        if not self.leader.is_under_min_isr:
            self.barriers_moved(now_ms, out)
            return
        self._must_excuse = True
        refused, freed = self.waiting.behind_unpassed(self.leader.log.hw, self.barrier.passed)
        for held in refused:
            message = "the ISR has fewer than min.insync.replicas members; ask again"
            self._reply(held.request_id, _unavailable(message, appended=held.appended), out)
        for held in freed:
            self._leave(held, now_ms, out)

    def call_gone(self, request_id: int, now_ms: int, out: list[Effect]) -> None:
        """A caller that waited here went away."""
        self.postponed.call_gone(request_id)
        for held in self.waiting.call_gone(request_id, self.leader.log.hw, self.barrier.passed):
            self._leave(held, now_ms, out)

    def resigned(self, refusal: Refusal, out: list[Effect]) -> None:
        """This node no longer leads the partition: refuse all waiting callers at once."""
        for held in self.waiting.all():
            outcome = Outcome.MAY_APPEAR if held.appended else Outcome.NOT_APPENDED
            self._reply(held.request_id, Refusal(refusal.code, refusal.message, outcome), out)
        for event in self.postponed.all():
            self._reply(event.request_id, Refusal(refusal.code, refusal.message, Outcome.NOT_APPENDED), out)

    def ticked(self, context: Context, out: list[Effect]) -> None:
        """Time passed: refuse what waited too long, let the machine act, sweep."""
        self._expire(context.now_ms, out)
        if self.barrier.maybe_begin(context.now_ms):
            self.barriers_moved(context.now_ms, out)
        if not self.is_serving or not self._can_commit(context):
            return
        for decision in self.machine.tick(context):
            refusal = self._take(decision, context, out, split=True)
            assert refusal is None, f"a decision without a caller cannot be taken: {refusal}"
        self._end_step(context, out)
        self._sweep(context, out)

    def _expire(self, now_ms: int, out: list[Effect]) -> None:
        for event, scope, refused in self.postponed.expired(now_ms):
            # As for every refusal, what it reveals of its scope must be committed first.
            self._answer(event, Decision(answer=refused, scope=scope), out)
        late, freed = self.waiting.expired(now_ms, self.leader.log.hw, self.barrier.passed)
        for held in late:
            self._reply(held.request_id, self._too_late(held), out)
        for held in freed:
            self._leave(held, now_ms, out)

    def _too_late(self, held: Held) -> Refusal:
        if held.barrier is not None and held.barrier > self.barrier.passed:
            message = "the replicas did not confirm in time that this node still leads the partition; ask again"
            return _unavailable(message, appended=held.appended)
        outcome = Outcome.MAY_APPEAR if held.appended else Outcome.NOT_APPENDED
        message = "what the answer depends on was not committed in time; ask again"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, message, outcome)

    def _can_commit(self, context: Context) -> bool:
        """Whether writes are committed now; when they are again, members get their full time (G8)."""
        since = self._open_since_ms
        stalled = since is not None and context.now_ms - since >= self.limits.stalled_after_ms
        if stalled or self.leader.is_under_min_isr:
            self._must_excuse = True
            return False
        if self._must_excuse:
            self._must_excuse = False
            self.machine.excuse(context)
        return True

    def excuse(self) -> None:
        """This process itself did not run for a while (M59)."""
        self._must_excuse = True

    def _sweep(self, context: Context, out: list[Effect]) -> None:
        limits = self.limits
        if self.sweep is None:
            if self.log_bytes <= max(limits.sweep_above_bytes, limits.sweep_ratio * self.table.live_bytes):
                return
            self.sweep = Sweep(self.table, self.leader.log.leo)
        if self.sweep.end is None:
            self.sweep.step(
                limits.sweep_step_bytes,
                limits.batch_bytes,
                lambda batch: self._append(batch, self._codec.encode(batch, context.unix_ms), context.now_ms, out),
            )
            self.leader.log.maybe_flush(out)
            if self.sweep.is_written:
                # Not where its own last batch ends: the newest value of a key that was left out may lie behind that.
                self.sweep.end = self.leader.log.leo
        self._maybe_trim(out)

    def _maybe_trim(self, out: list[Effect]) -> None:
        sweep = self.sweep
        if sweep is None or sweep.end is None or not self.is_replaced(sweep.end):
            return
        self.leader.log.advance_log_start(sweep.first_offset, out)
        self.log_bytes, self.sweep = sweep.bytes_since, None

    def is_replaced(self, end: Offset) -> bool:
        """Whether a sweep that was written up to ``end`` is committed, so that what it replaced may go."""
        return self.leader.log.hw >= end
