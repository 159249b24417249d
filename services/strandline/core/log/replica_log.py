"""A core's state of one log, as leader or follower: LEO, DUR, HW, log start, epochs, producers.

Invariants (I0), asserted after every change: log start <= HW <= LEO, DUR <= LEO, epochs increase.
Every effect that changes the files is created here, so the order of effects is decided in one place.
"""

from __future__ import annotations

from bisect import bisect_left

from strandline.core.log import effects
from strandline.core.log.events import LogOpened
from strandline.core.log.producers import ProducerLedger
from strandline.core.log.truncation import EpochCache
from strandline.core.types import (
    NO_TRANSACTIONS,
    BatchHeader,
    LeaderEpoch,
    Offset,
    ProducerBatch,
    TopicPartition,
    TransactionState,
)

# ---- sizes
# How many bytes lie behind an offset, so that a fetch can be answered or parked without looking at the disk.
#
# Invariant: a position is never below the true count of bytes, so a fetch is never parked on data it could
# have had. Only recent appends are remembered; an older offset counts as "enough" (Kafka, too, answers a
# fetch at once when its offset lies on an older segment, M23 F).

REMEMBERED_APPENDS = 4096
PLENTY_BYTES = 1 << 62


class SizeLedger:
    """Cumulative bytes at recent batch ends of one log."""

    __slots__ = ("_ends", "_totals")

    def __init__(self, leo: Offset) -> None:
        self._ends: list[int] = [leo]
        self._totals: list[int] = [0]

    def appended(self, leo: Offset, size_bytes: int) -> None:
        """A batch of ``size_bytes`` moved the log end to ``leo``."""
        self._ends.append(leo)
        self._totals.append(self._totals[-1] + size_bytes)
        if len(self._ends) > 2 * REMEMBERED_APPENDS:
            del self._ends[:REMEMBERED_APPENDS], self._totals[:REMEMBERED_APPENDS]

    def truncated(self, leo: Offset) -> None:
        """The log was cut to ``leo``."""
        kept = bisect_left(self._ends, leo + 1)
        del self._ends[kept:], self._totals[kept:]
        if not self._ends or self._ends[-1] != leo:
            self._ends, self._totals = [leo], [0]

    def bytes_before(self, offset: Offset) -> int | None:
        """Bytes of the batches that end at or before ``offset``, counted from an arbitrary but fixed start; None if
        ``offset`` is older than what is remembered. Only the difference of two values means anything."""
        if offset < self._ends[0]:
            return None
        return self._totals[bisect_left(self._ends, offset + 1) - 1]

    def batch_before(self, offset: Offset) -> Offset:
        """Where the last batch that begins below ``offset`` begins; ``offset`` itself if that is not remembered."""
        place = bisect_left(self._ends, offset)
        return Offset(self._ends[place - 1]) if place else offset

    def bytes_between(self, start: Offset, end: Offset) -> int:
        """Bytes of the batches in [start, end); PLENTY_BYTES if ``start`` is older than what is remembered."""
        if start >= end:
            return 0
        if start < self._ends[0]:
            return PLENTY_BYTES
        first = bisect_left(self._ends, start + 1) - 1
        last = bisect_left(self._ends, end + 1) - 1
        return self._totals[last] - self._totals[first]


class DurablePoint:
    """DUR of one log: how far completed commits reach, and whether one is under way (M54, M55). Everything below
    ``point`` survives a power loss. A commit covers what was appended when it was *issued*; a truncation between issue
    and completion takes away from what it covers."""

    __slots__ = ("_lowest_cut", "_under_way", "point")

    def __init__(self, point: Offset) -> None:
        self.point = point
        # Offset up to which the commit under way will cover; None if none is under way.
        self._under_way: Offset | None = None
        # Lowest truncation since that commit was issued; None if there was none.
        self._lowest_cut: Offset | None = None

    def maybe_issue(self, leo: Offset) -> bool:
        """Whether to issue a commit now: something is not durable and no commit is under way."""
        # One commit serves every append that waited; what arrives meanwhile is covered by the next.
        if self._under_way is not None or self.point >= leo:
            return False
        self._under_way, self._lowest_cut = leo, None
        return True

    def complete(self, issued_leo: Offset) -> bool:
        """The commit issued at ``issued_leo`` succeeded. Returns whether DUR rose."""
        # A completion that does not name the commit under way (a closed log's, a final flush) proves nothing here.
        if self._under_way is None or self._under_way != issued_leo:
            return False
        # What was appended after a cut has offsets that this commit saw with other records, or not at all (M55).
        covered = self._under_way if self._lowest_cut is None else min(self._under_way, self._lowest_cut)
        self._under_way, self._lowest_cut = None, None
        if covered <= self.point:
            return False
        self.point = covered
        return True

    def truncated(self, offset: Offset) -> None:
        """The log was cut to ``offset``: DUR := min(DUR, offset), at once."""
        self.point = min(self.point, offset)
        if self._under_way is not None:
            self._lowest_cut = offset if self._lowest_cut is None else min(self._lowest_cut, offset)

    def restarted(self, offset: Offset) -> None:
        """The log was discarded and restarts, empty and durable, at ``offset``."""
        if self._under_way is not None:
            # The commit under way covers bytes that no longer exist; it must not cover new ones.
            self._lowest_cut = Offset(0)
        self.point = offset


class ReplicaLog:
    """One log as the core sees it. ``fsync``: an append counts only when it is durable (M54, M55). ``fenced`` False is
    for the historic rules: a log may then hold records of an epoch that its node never learnt."""

    __slots__ = (
        "checkpointed_hw",
        "committed",
        "cutting",
        "durable",
        "epochs",
        "exposed_hw",
        "fenced",
        "fsync",
        "hw",
        "knows_committed",
        "leo",
        "log_start_offset",
        "producers",
        "reconciled_epoch",
        "sizes",
        "topic",
        "tp",
    )

    def __init__(self, topic: str, opened: LogOpened, *, fsync: bool, fenced: bool = True) -> None:
        self.tp: TopicPartition = opened.tp
        self.topic = topic
        self.fsync = fsync
        self.fenced = fenced
        self.leo = opened.leo
        # A cut was asked for and not performed: where it ends is known only then, for batches are never split.
        self.cutting = False
        self.log_start_offset = opened.log_start_offset
        # Recovery made everything durable before it handed the log over (TR17).
        self.durable = DurablePoint(opened.leo)
        self.hw = self._clamped(opened.high_watermark)
        self.checkpointed_hw = self.hw
        # Everything below was committed. A new leader may bring a lower HW (M7); what was known before stays true.
        self.committed = self.hw
        # Whether `committed` is of this process's own time, or of a clean stop: a checkpoint may be seconds old.
        self.knows_committed = opened.stopped_cleanly
        # Highest HW a consumer was shown while following; what consumers see never goes back (I13).
        self.exposed_hw = self.hw
        self.epochs = EpochCache(opened.epochs)
        # The last leader epoch in which this log led or passed the divergence check (M66).
        self.reconciled_epoch = opened.reconciled_epoch
        self._begin_producers(opened.producers, opened.transactions)
        self.sizes = SizeLedger(opened.leo)
        self.assert_sane()

    def is_near_hw(self, offset: Offset) -> bool:
        """Whether an offset is at or above the HW, or at the last batch below it."""
        return offset >= self.sizes.batch_before(self.hw)

    @property
    def vote(self) -> Offset:
        """The LEO this replica may answer for: the durable one under ``fsync`` (M55)."""
        return self.durable.point if self.fsync else self.leo

    @property
    def lso(self) -> Offset:
        """The last stable offset: every transaction below it is decided for good (X12). It never goes back while the
        HW does not, because a transaction begins and ends at the LEO."""
        transactions = self.producers.transactions
        if not transactions.open and not transactions.ended:
            return self.hw
        first_unstable = transactions.first_unstable
        return self.hw if first_unstable is None else min(self.hw, first_unstable)

    @property
    def is_settled(self) -> bool:
        """Whether the LEO may be reported to a leader: it is durable (M54), and no cut is under way."""
        return not self.cutting and (not self.fsync or self.durable.point == self.leo)

    def append_as_leader(
        self,
        header: BatchHeader,
        payload: object,
        epoch: LeaderEpoch,
        out: list[effects.Effect],
        *,
        flushes: bool = True,
    ) -> Offset:
        """Append one batch at the LEO and return its base offset. Without ``flushes`` the caller asks for the flush in
        the same step, when everything is appended that it covers."""
        latest = self.epochs.latest_epoch
        assert latest == epoch, f"I0: a leader of epoch {epoch} appends to a log whose latest epoch is {latest}"
        base_offset = self.leo
        out.append(effects.Append(self.tp, base_offset, epoch, header, payload))
        self._grew(header, base_offset)
        if flushes:
            self.maybe_flush(out)
        return base_offset

    def append_replicated(self, batches: tuple[BatchHeader, ...], payload: object, out: list[effects.Effect]) -> None:
        """Append what the leader sent; its first base offset must be the LEO (M4)."""
        base_offset = self.leo
        assert batches[0].base_offset == base_offset, f"M4: batch at {batches[0].base_offset}, LEO {base_offset}"
        changed = False
        for header in batches:
            if header.leader_epoch is not None:
                changed |= self.epochs.assign(header.leader_epoch, header.base_offset)
        if changed:
            # Before the append: an entry without its batch is dropped by recovery, a batch never lacks its entry.
            self._save_epochs(out)
        out.append(effects.AppendReplicated(self.tp, base_offset, batches, payload))
        for header in batches:
            self._grew(header, header.base_offset)
        self.maybe_flush(out)

    def assign_epoch(self, epoch: LeaderEpoch, out: list[effects.Effect]) -> None:
        """A new leader's epoch begins at the LEO, at once and even if nothing is ever written (M35)."""
        assert self.may_begin(epoch), f"I0: leader epoch {epoch} on a log of epoch {self.epochs.latest_epoch}"
        # A leader that learnt its own epoch only from its first record could not answer a follower whose last record is
        # newer than all of its own (KAFKA-7415).
        if self.epochs.assign(epoch, self.leo):
            self._save_epochs(out)

    def may_begin(self, epoch: LeaderEpoch) -> bool:
        """Whether this log may be led in ``epoch``: it holds nothing of a later one."""
        latest = self.epochs.latest_epoch
        return latest is None or latest <= epoch or not self.fenced

    def flushed(self, issued_leo: Offset, out: list[effects.Effect]) -> None:
        """The commit issued at ``issued_leo`` completed; what arrived meanwhile needs the next one."""
        if self.durable.complete(issued_leo):
            out.append(effects.NoteDurable(self.tp, self.durable.point))
        self.maybe_flush(out)
        self.assert_sane()

    def save_producers(self, out: list[effects.Effect]) -> None:
        """Write down who produced what, as of now."""
        out.append(effects.SaveProducers(self.tp, self.leo, self.producers.rows(), self.producers.transactions.state()))

    def _grew(self, header: BatchHeader, base_offset: Offset) -> None:
        self.leo = Offset(base_offset + header.record_count)
        self.sizes.appended(self.leo, header.size_bytes)
        if header.producer is not None:
            self.producers.observe(header, base_offset)

    def maybe_flush(self, out: list[effects.Effect]) -> None:
        """Make durable what is not, unless a commit is under way: its end asks again."""
        if self.fsync and self.durable.maybe_issue(self.leo):
            out.append(effects.Flush(self.tp))

    def truncate(self, offset: Offset, out: list[effects.Effect]) -> None:
        """Cut to ``offset``; at or beyond the LEO only phantom epochs go (M41)."""
        if offset < self.leo:
            out.append(effects.Truncate(self.tp, offset, durable=self.fsync))
            self.cutting = True
        self._shrunk(min(offset, self.leo), out)

    def truncated(
        self,
        leo: Offset,
        rows: tuple[ProducerBatch, ...],
        out: list[effects.Effect],
        transactions: TransactionState = NO_TRANSACTIONS,
    ) -> None:
        """The cut was performed: take over the producer state that is left, and where the log really ends."""
        assert leo <= self.leo, f"the log was cut to {leo}, the core expected {self.leo}"
        self.cutting = False
        if leo < self.log_start_offset:
            # What is remembered of producers is of batches below the cut, which both logs have.
            self.restart_at(self.log_start_offset, out, rows, transactions)
            return
        self._begin_producers(rows, transactions)
        # It ends lower than asked for if the offset lies within a batch: when the leader's first epoch begins at a log
        # start (M10), that need not be a batch boundary in a log that diverged.
        if leo < self.leo:
            self._shrunk(leo, out)

    def _begin_producers(self, rows: tuple[ProducerBatch, ...], transactions: TransactionState) -> None:
        self.producers = ProducerLedger(rows, transactions)
        self.producers.transactions.log_begins_at(self.log_start_offset)
        self.producers.transactions.settled(self.committed)

    def _shrunk(self, leo: Offset, out: list[effects.Effect]) -> None:
        if leo < self.leo:
            self.leo = leo
            self.durable.truncated(leo)
            self.sizes.truncated(leo)
            self.hw, self.committed = min(self.hw, leo), min(self.committed, leo)
        if self.epochs.truncate_from_end(self.leo):
            self._save_epochs(out)
        # Otherwise the next start would find a log that ends below its checkpointed HW, and register its node as
        # unclean (M58).
        if self.checkpointed_hw > self.leo:
            self._save_high_watermark(out)
        self.assert_sane()

    def restart_at(
        self,
        offset: Offset,
        out: list[effects.Effect],
        producers: tuple[ProducerBatch, ...] = (),
        transactions: TransactionState = NO_TRANSACTIONS,
    ) -> None:
        """Restart empty at the leader's higher log start (M30), with the producer state below it; no committed record
        is cut."""
        # Without the producer state, this replica as leader would append again a batch that was deleted before its
        # sender had an answer (C43), and give out records of an aborted transaction that began below (X15).
        out.append(effects.RestartLog(self.tp, offset, producers, transactions))
        self.leo = self.log_start_offset = self.hw = self.committed = offset
        self.durable.restarted(offset)
        self.epochs.clear()
        self._begin_producers(producers, transactions)
        self.sizes = SizeLedger(offset)
        self._save_epochs(out)
        self._save_high_watermark(out)
        self.assert_sane()

    def advance_log_start(self, offset: Offset, out: list[effects.Effect]) -> None:
        """Move the log start up to at most the HW (M10). Does nothing backwards."""
        target = min(offset, self.hw)
        if target <= self.log_start_offset:
            return
        self.log_start_offset = target
        self.producers.transactions.log_begins_at(target)
        out.append(effects.AdvanceLogStart(self.tp, target))
        if self.epochs.truncate_from_start(target):
            self._save_epochs(out)
        self.assert_sane()

    def raise_hw(self, candidate: Offset) -> bool:
        """A leader's HW never goes back (M6). Returns whether it rose."""
        assert candidate <= self.leo, f"I0: HW {candidate} beyond LEO {self.leo}"
        if candidate <= self.hw:
            return False
        self.hw = candidate
        self._learned()
        return True

    def follow_hw(self, leader_hw: Offset) -> bool:
        """A follower's HW is min(leader's, own LEO), and may go down (M7). Returns whether it moved."""
        before = self.hw
        self.hw = self._clamped(leader_hw)
        self._learned()
        return self.hw != before

    def _learned(self) -> None:
        self.knows_committed = True
        if self.hw > self.committed:
            self.committed = self.hw
            if self.producers.transactions.ended:
                self.producers.transactions.settled(self.hw)

    def expose_hw(self) -> Offset | None:
        """The HW a consumer of a follower is shown; None while it is below one that was shown before (I13)."""
        if self.hw < self.exposed_hw:
            return None
        self.exposed_hw = self.hw
        return self.hw

    def _clamped(self, offset: Offset) -> Offset:
        return max(self.log_start_offset, min(offset, self.leo))

    def _save_epochs(self, out: list[effects.Effect]) -> None:
        out.append(effects.SaveEpochs(self.tp, self.epochs.entries))

    def _save_high_watermark(self, out: list[effects.Effect]) -> None:
        self.checkpointed_hw = self.hw
        out.append(effects.SaveHighWatermarks({self.tp: self.hw}, durable=self.fsync))

    def assert_sane(self) -> None:
        """I0, as far as one log can show it."""
        assert self.log_start_offset <= self.hw <= self.leo, f"I0: {self!r}"
        assert self.durable.point <= self.leo, f"I0: {self!r}"

    def __repr__(self) -> str:
        return (
            f"<Log {self.topic}-{self.tp.partition} start={self.log_start_offset} hw={self.hw} "
            f"leo={self.leo} durable={self.durable.point}>"
        )
