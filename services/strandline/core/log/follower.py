"""Decides how a follower comes to agree with its leader: truncating, then fetching; and when it gives up.

Invariants: only followers truncate (M39); never on a failed call, only on an answer (T28); never below the
own HW unless an unclean election explains it or the rules accept loss (M41); a fetch is sent only when
everything below its offset is durable (M54).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from strandline.core.errors import ErrorCode
from strandline.core.log.effects import Effect, Emit
from strandline.core.log.move_throttle import HeldTime
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.log.saving_order import NodeTimings
from strandline.core.log.truncation import FirstMove, cut_for, rule_for
from strandline.core.messages import (
    EpochEndAnswer,
    FetchedPartition,
    OffsetAnswer,
    PartitionImage,
    ProducerSnapshotAnswer,
)
from strandline.core.state_events import PartitionFailed, Truncation
from strandline.core.types import (
    NO_TRANSACTIONS,
    BatchHeader,
    Durability,
    EpochEnd,
    LeaderEpoch,
    NodeId,
    Offset,
    ProducerBatch,
    Rules,
    TransactionState,
)

_RESTART = "restart_at_log_start"
"""Why a log that ended below its leader's log start is restarted; nothing that the leader has is cut."""


class FetchState(StrEnum):
    """How far a follower has come to agree with its leader."""

    WAITING = "waiting"
    """No leader is known."""
    TRUNCATING = "truncating"
    """The leader is asked where the last epoch ended."""
    FETCHING = "fetching"
    OUT_OF_RANGE = "out_of_range"
    """The leader is asked for its log's ends."""
    RESTARTING = "restarting"
    """The leader is asked for the producer state below its log start, where this log begins again (C43)."""
    FAILED = "failed"
    """Stopped until a new leader epoch; the reason says why."""


class FollowerReplica:
    """One partition on a node that follows (or observes), in one leader epoch."""

    __slots__ = (
        "_forgiving",
        "_restart_reason",
        "_rule",
        "_timings",
        "asked_at_ms",
        "backoff_ms",
        "barrier_seen",
        "damaged_count",
        "held",
        "image",
        "leader_hw",
        "log",
        "log_start_found",
        "outstanding",
        "reason",
        "refused_cut_to",
        "retry_at_ms",
        "state",
    )

    def __init__(self, image: PartitionImage, log: ReplicaLog, rules: Rules, timings: NodeTimings, now_ms: int) -> None:
        self.image = image
        self.log = log
        self._timings = timings
        self._rule = rule_for(rules.truncation)
        self._forgiving = rules.durability is Durability.PAGE_CACHE or self._rule.forgiving
        self.reason = ""
        # Where this replica refused to cut, below its own HW; None if it did not (M41, M69).
        self.refused_cut_to: Offset | None = None
        # Correlation id of the one question under way, whatever it asks; None if none is.
        self.outstanding: int | None = None
        self.asked_at_ms = now_ms
        self.retry_at_ms = now_ms
        self.backoff_ms = timings.replica_fetch_backoff_ms
        self.damaged_count = 0
        # The newest read barrier that this leader epoch's leader has sent (G10).
        self.barrier_seen: int | None = None
        # The HW of the leader's last answer; None before the first.
        self.leader_hw: Offset | None = None
        # Where a leader that knows no FetchProducerSnapshot lets this log begin again.
        self.log_start_found: Offset | None = None
        self._restart_reason = _RESTART
        self.held = HeldTime()
        self.state = FetchState.WAITING

    @property
    def agrees_before_fetching(self) -> bool:
        """Whether a replica that fetches knows already that its log is a prefix of its leader's (M66)."""
        return self._rule.asks_first

    def begin(self, out: list[Effect]) -> None:
        """Make the first move toward the leader, as the rule in force says; without a leader wait for one."""
        if self.image.leader is None:
            return
        move = self._rule.first_move(self.log.epochs)
        self.state = FetchState.TRUNCATING if move is FirstMove.ASK else FetchState.FETCHING
        if move is FirstMove.CUT_TO_HW:
            self._cut(self.log.hw, "high_watermark", out)

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch this replica follows."""
        return self.image.leader_epoch

    @property
    def leader(self) -> NodeId | None:
        """The leader followed, if one is known."""
        return self.image.leader

    @property
    def lags(self) -> bool:
        """Whether it is further behind the leader's HW than one batch like its own last one."""
        log = self.log
        return self.leader_hw is not None and self.leader_hw - log.leo > log.leo - log.sizes.batch_before(log.leo)

    def is_ready(self, now_ms: int) -> bool:
        """Whether the next question may be asked now."""
        return (
            self.outstanding is None
            and self.retry_at_ms <= now_ms
            and self.state not in (FetchState.WAITING, FetchState.FAILED)
            # A fetch offset acknowledges everything below it, so none of that may be lost with the power (M54).
            and self.log.is_settled
        )

    def on_epoch_end(self, answer: EpochEndAnswer, now_ms: int, out: list[Effect]) -> None:
        """The leader said where the asked epoch ended on it (M38), or refused to say."""
        assert self.state is FetchState.TRUNCATING, self.state
        if answer.refusal is not None:
            self._refused(answer.refusal.code, str(answer.refusal), now_ms, out)
            return
        if answer.end is not None and _is_impossible(answer.end):
            self._damaged(f"epoch {answer.end.epoch} ended at {answer.end.end_offset}", now_ms, out)
            return
        cut = self._rule.cut(self.log.epochs, self.log.leo, self.log.hw, answer.end)
        # The only other place to cut is the own HW, and above that there may be acknowledged records (M40).
        if cut is None:
            self.fail("the leader does not know this replica's latest epoch", out)
            return
        self._heard()
        reason = "epoch_end_offset" if answer.end is not None else "high_watermark"
        if self._cut(cut.offset, reason, out) and cut.settled:
            self.state = FetchState.FETCHING

    def on_fetched(self, answer: FetchedPartition, now_ms: int, out: list[Effect]) -> bool:
        """The leader answered a fetch. Returns whether the HW moved."""
        assert self.state is FetchState.FETCHING, self.state
        if answer.error is not None and answer.error.code is not ErrorCode.NONE:
            self._fetch_refused(answer, now_ms, out)
            return False
        if answer.corrupt is not None:
            self._damaged(answer.corrupt, now_ms, out)
            return False
        if answer.diverging is not None and _is_impossible(answer.diverging):
            what = f"diverging epoch {answer.diverging.epoch} ended at {answer.diverging.end_offset}"
            self._damaged(what, now_ms, out)
            return False
        self._heard()
        if answer.barrier is not None:
            self.barrier_seen = answer.barrier
        if answer.diverging is not None:
            # HW and log start of this answer belong to a log we are not a prefix of (M32, KAFKA-14704).
            self._diverged(answer.diverging, now_ms, out)
            return False
        return self._apply(answer, now_ms, out)

    def _apply(self, answer: FetchedPartition, now_ms: int, out: list[Effect]) -> bool:
        log = self.log
        if _deletes_too_much(answer):
            what = f"log start {answer.log_start_offset} above the high watermark {answer.high_watermark}"
            self._damaged(what, now_ms, out)
            return False
        if answer.batches:
            self._begin_with(answer.batches[0], out)
            wrong = self._misfit(answer)
            if wrong:
                self._damaged(wrong, now_ms, out)
                return False
            log.append_replicated(answer.batches, answer.payload, out)
        self.damaged_count = 0
        # After the append, because the HW is limited to the own LEO: before it, it would be one round trip late (M7).
        moved = answer.high_watermark is not None and log.follow_hw(answer.high_watermark)
        if answer.log_start_offset is not None and answer.log_start_offset > log.log_start_offset:
            # A leader deletes only what is committed (M10), so the HW may rise to its log start; the log start never
            # passes the HW.
            log.follow_hw(Offset(max(log.hw, min(answer.log_start_offset, log.leo))))
            log.advance_log_start(answer.log_start_offset, out)
        log.assert_sane()
        self.leader_hw = answer.high_watermark
        return moved

    def _begin_with(self, batch: BatchHeader, out: list[Effect]) -> None:
        log = self.log
        # Batches are never split, so a log that was restarted within one begins with the whole of it.
        is_empty = log.epochs.latest_epoch is None and log.log_start_offset == log.leo
        if is_empty and 0 <= batch.base_offset < log.leo < batch.next_offset:
            producers = log.producers
            log.restart_at(batch.base_offset, out, producers.rows(), producers.transactions.state())

    def _misfit(self, answer: FetchedPartition) -> str:
        expected, epoch = self.log.leo, self.log.epochs.latest_epoch
        for batch in answer.batches:
            if batch.base_offset != expected:
                return f"batch at offset {batch.base_offset} where {expected} was due"
            if self._rule.fenced:
                if batch.leader_epoch is None:
                    return f"batch of no epoch at offset {expected}"
                if epoch is not None and batch.leader_epoch < epoch:
                    return f"batch of epoch {batch.leader_epoch} after epoch {epoch} at offset {expected}"
                if batch.leader_epoch > self.leader_epoch:
                    return f"batch of epoch {batch.leader_epoch} from a leader of epoch {self.leader_epoch}"
            expected, epoch = batch.next_offset, batch.leader_epoch
        return ""

    def on_offsets(self, latest: OffsetAnswer, earliest: OffsetAnswer, now_ms: int, out: list[Effect]) -> None:
        """The leader said where its log begins and ends (M30)."""
        assert self.state is FetchState.OUT_OF_RANGE, self.state
        refusal = latest.refusal or earliest.refusal
        if refusal is not None:
            self._refused(refusal.code, str(refusal), now_ms, out)
            return
        if latest.offset is None or earliest.offset is None:
            # An empty answer counts as none (M39); a peer's mistake does not stop this process.
            self.on_no_answer(now_ms)
            return
        if latest.offset < 0 or earliest.offset < 0:
            self._damaged(f"log from {earliest.offset} to {latest.offset}", now_ms, out)
            return
        self._heard()
        if latest.offset < self.log.leo:
            if not self._cut(latest.offset, "out_of_range", out):
                return
        elif earliest.offset >= self.log.leo:
            # Nothing in this log is of use; at the very log start, the leader cannot know whether it agrees below.
            self._restart_from(earliest.offset, _RESTART)
            if earliest.offset > 0:
                return
            # Nothing is below, so there is nothing to ask for.
            self._restart_at(Offset(0), (), NO_TRANSACTIONS, out)
        else:
            # Nothing explains the refusal; asking again at once would only spin.
            self.retry_at_ms = now_ms + self.backoff_ms
        self.state = FetchState.FETCHING

    def on_producer_snapshot(self, answer: ProducerSnapshotAnswer, now_ms: int, out: list[Effect]) -> None:
        """The leader said what it remembers of producers below its log start: this log begins exactly there (C43)."""
        assert self.state is FetchState.RESTARTING, self.state
        start, producers, transactions = answer.log_start_offset, answer.producers, answer.transactions
        if answer.refusal is not None and answer.refusal.code is ErrorCode.UNSUPPORTED_VERSION:
            # A leader of an earlier release: begin as those did, with a producer that may be unknown.
            start, producers, transactions = self.log_start_found, (), NO_TRANSACTIONS
        elif answer.refusal is not None:
            self._refused(answer.refusal.code, str(answer.refusal), now_ms, out)
            return
        if start is None:
            self.on_no_answer(now_ms)
            return
        lowest = self.log_start_found if self._restart_reason == _RESTART else None
        if wrong := _unfit(start, producers, transactions, lowest):
            self._damaged(wrong, now_ms, out)
            return
        self._heard()
        self._restart_at(start, producers, transactions, out)
        self.state = FetchState.FETCHING

    def _restart_from(self, offset: Offset, reason: str) -> None:
        """Begin again, as soon as it is known what is below the leader's log start."""
        self.log_start_found, self._restart_reason = offset, reason
        self.state = FetchState.RESTARTING

    def _restart_at(
        self,
        offset: Offset,
        producers: tuple[ProducerBatch, ...],
        transactions: TransactionState,
        out: list[Effect],
    ) -> None:
        self._emit_truncation(offset, self._restart_reason, out)
        self.log.restart_at(offset, out, producers, transactions)

    def on_no_answer(self, now_ms: int) -> None:
        """The question went unanswered: nothing is known, so nothing is done but ask again (M39, T28)."""
        self.outstanding = None
        self.retry_at_ms = now_ms + self.backoff_ms
        self.backoff_ms = min(2 * self.backoff_ms, self._timings.replica_fetch_backoff_max_ms)

    def _fetch_refused(self, answer: FetchedPartition, now_ms: int, out: list[Effect]) -> None:
        assert answer.error is not None
        if answer.error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._heard()
            self.state = FetchState.OUT_OF_RANGE
        else:
            self._refused(answer.error.code, str(answer.error), now_ms, out)

    def _refused(self, code: ErrorCode, text: str, now_ms: int, out: list[Effect]) -> None:
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            # The leader is ahead of our metadata: stop until it has arrived (M29).
            self.fail(text, out)
        else:
            self.on_no_answer(now_ms)

    def _damaged(self, what: str, now_ms: int, out: list[Effect]) -> None:
        self.damaged_count += 1
        # Damage on the way is gone at the next fetch, damage on the leader's disk stays (M29).
        if self.damaged_count >= self._timings.replica_fetch_damaged_limit:
            self.fail(f"the leader's log is damaged at offset {self.log.leo}: {what}", out)
        else:
            self.on_no_answer(now_ms)

    def fail(self, reason: str, out: list[Effect], *, refused_to_leo: Offset | None = None) -> None:
        """Stop replicating this partition until a new leader epoch (KIP-461), perhaps for a refused cut (M41)."""
        self.state, self.reason, self.outstanding = FetchState.FAILED, reason, None
        self.refused_cut_to = refused_to_leo
        failed = PartitionFailed(reason, self.log.leo, self.log.hw, refused_to_leo, self.leader_epoch)
        out.append(Emit(self.log.tp, failed))

    def _heard(self) -> None:
        self.outstanding = None
        self.backoff_ms = self._timings.replica_fetch_backoff_ms

    def _diverged(self, diverging: EpochEnd, now_ms: int, out: list[Effect]) -> None:
        # An unsettled cut needs no question here: the next fetch carries the epoch that is left (T30).
        before = (self.log.leo, self.log.epochs.latest_epoch)
        self._cut(cut_for(self.log.epochs, self.log.leo, diverging).offset, "diverging_epoch", out)
        if self.state is FetchState.FETCHING and (self.log.leo, self.log.epochs.latest_epoch) == before:
            # The cut changed nothing, so the next fetch would say the same again.
            self.on_no_answer(now_ms)

    def _cut(self, offset: Offset, reason: str, out: list[Effect]) -> bool:
        """Truncate to ``offset``, unless that would undo what was committed (M41). Returns whether it was done."""
        log = self.log
        # This replica may be the last one that has those records: it keeps them, and the controller or an operator
        # decides (M41, M69).
        if offset < log.committed and not self._may_cut_committed(offset):
            reason = f"truncating to {offset} would cut committed records below the HW {log.committed}"
            self.fail(reason, out, refused_to_leo=offset)
            return False
        if offset < log.log_start_offset:
            # Nothing of this log is left, so it begins where the leader's does, and needs what is below (C43).
            self._restart_from(offset, reason)
            return False
        if offset < log.leo:
            self._emit_truncation(offset, reason, out)
        hw_before, explained = log.hw, offset >= log.committed or self._may_cut_committed(offset)
        log.truncate(offset, out)
        assert log.hw == hw_before or explained, f"I11: cut to {offset} below HW {hw_before}"
        return True

    def _may_cut_committed(self, offset: Offset) -> bool:
        if self._forgiving:
            return True
        # An unclean election accepted that committed records of earlier epochs are lost; a cut of anything later is not
        # explained by it.
        unclean = self.image.last_unclean_leader_epoch
        epoch = self.log.epochs.epoch_of(max(offset, self.log.log_start_offset))
        return unclean is not None and epoch is not None and epoch < unclean

    def _emit_truncation(self, offset: Offset, reason: str, out: list[Effect]) -> None:
        log = self.log
        cut = Truncation(
            from_leo=log.leo,
            to_leo=offset,
            hw_before=log.hw,
            committed_cut=0 if reason == _RESTART else _committed_cut(log, offset),
            reason=reason,
            leader_epoch=self.leader_epoch,
        )
        out.append(Emit(log.tp, cut))

    def __repr__(self) -> str:
        return (
            f"<Follower {self.log.topic}-{self.log.tp.partition} epoch={self.leader_epoch} leader={self.leader} "
            f"{self.state} leo={self.log.leo} hw={self.log.hw}>"
        )


def _is_impossible(end: EpochEnd) -> bool:
    """Whether no log can have ended an epoch there. Followed, it would cut a log that trusts its leader to nothing."""
    return end.epoch < 0 or end.end_offset < 0


def _unfit(
    start: Offset, producers: Sequence[ProducerBatch], transactions: TransactionState, lowest: Offset | None
) -> str:
    """Why this cannot be the producer state below a log start; empty if it can. A log start never goes back."""
    if start < (lowest or 0):
        return f"log start {start}, and {lowest or 0} before"
    if any(not 0 <= row.first_offset <= row.last_offset < start for row in producers):
        return f"producer batches at or above the log start {start}"
    offsets = [transaction.first_offset for transaction in transactions.open]
    offsets += [marker.offset for marker in transactions.markers]
    if any(not 0 <= offset < start for offset in offsets):
        return f"transactions at or above the log start {start}"
    return ""


def _deletes_too_much(answer: FetchedPartition) -> bool:
    """Whether a leader says that it deleted what is not committed, which none does (M10)."""
    start, hw = answer.log_start_offset, answer.high_watermark
    return start is not None and hw is not None and start > hw


def _committed_cut(log: ReplicaLog, offset: Offset) -> int | None:
    """How many committed records a cut to ``offset`` takes; None if this replica does not know."""
    # A HW from a checkpoint of an earlier process shows nothing above the cut: other replicas' events have to.
    known = max(0, log.committed - offset)
    return known if known or log.knows_committed else None
