"""Which batch of one partition is sent next, and when it is given up; `send_retry` decides what a refusal means.

Invariant: batches of a partition are attempted in the order of their sequences, at most ``max_in_flight``
unanswered; a batch keeps identity and sequence through all its attempts and gets others only if every attempt
is known not to have been appended. So a retry never duplicates and never overtakes (M61, TR20, P2).

After a failed attempt nothing is sent until every attempt under way is answered or lost; then all of them go
again, oldest first. When a sequence is given up for good, the ones behind it would leave a gap that the leader
refuses: the lane then *drains* (only batches that already have a sequence are sent again, under it), asks for a
new producer id, and numbers what was never written from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum

from strandline.client.cluster.view import Leader
from strandline.client.log import RetryLog
from strandline.client.produce.delivery import OutgoingBatch, ProducerIdentity
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.types import LeaderEpoch, Offset
from strandline.rpc.channels import Backoff

# ---- send_retry
# What a refused send means for its batch: acknowledged after all, sent again, numbered again, or given up.
#
# Invariant: a batch that may have been appended is sent again only under the sequence it had (M61), and never without
# one: nothing would tell the second copy from the first.

_SEQUENCE_REFUSED = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID}
)


class AfterRefusal(Enum):
    """What becomes of a batch."""

    ACKNOWLEDGED = "acknowledged"
    """The leader already has it."""
    SENT_AGAIN = "sent again"
    NUMBERED_AGAIN = "numbered again"
    """It was never written under its sequence, which no leader will take any more."""
    GIVEN_UP = "given up"


def after_refusal(
    refusal: Refusal, *, idempotent: bool, may_have_appeared: bool, behind_an_older: bool, transactional: bool = False
) -> AfterRefusal:
    """Decide for one batch. ``transactional``: it has no other number than that of its transaction, which ends with it.

    ``may_have_appeared``: some attempt, this one included, may have been appended. ``behind_an_older``: a batch with a
    smaller sequence is not answered yet.
    """
    if refusal.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return AfterRefusal.ACKNOWLEDGED
    if idempotent and refusal.code in _SEQUENCE_REFUSED:
        if behind_an_older and refusal.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # The gap is the older batch, which was refused and goes again first.
            return AfterRefusal.SENT_AGAIN
        is_final = may_have_appeared or transactional
        return AfterRefusal.GIVEN_UP if is_final else AfterRefusal.NUMBERED_AGAIN
    if may_have_appeared and not idempotent:
        return AfterRefusal.GIVEN_UP
    return AfterRefusal.SENT_AGAIN if refusal.retriable else AfterRefusal.GIVEN_UP


SEQUENCE_MODULUS = 1 << 31


class PartitionLane:
    """The way of one partition's batches to its leader."""

    __slots__ = (
        "_backoff",
        "_idempotent",
        "_is_transactional",
        "_leader_epoch",
        "_max_in_flight",
        "_next_sequence",
        "identity",
        "in_flight",
        "is_draining",
        "is_stalled",
        "last_refusal",
        "name",
        "queue",
        "resume_at_ms",
        "retry",
    )

    def __init__(
        self,
        name: str,
        *,
        idempotent: bool,
        max_in_flight: int,
        backoff: Backoff | None = None,
        is_transactional: bool = False,
    ) -> None:
        """``name``: the partition, as the log names it."""
        self._is_transactional = is_transactional
        self.name = name
        self.retry = RetryLog(f"producing to {name}")
        # Why the newest attempt failed; None once a leader has acknowledged one.
        self.last_refusal: Refusal | None = None
        self._idempotent = idempotent
        self._max_in_flight = max_in_flight
        # The transaction before is being ended while the first batch of the next one arrives, which takes some ms.
        self._backoff = backoff or (Backoff(first_ms=10) if is_transactional else Backoff())
        self._next_sequence = 0
        self._leader_epoch: LeaderEpoch | None = None
        self.identity: ProducerIdentity | None = None
        # Closed batches to be sent, oldest first; those that are retried come before all others.
        self.queue: deque[OutgoingBatch] = deque()
        # Attempted in this round, oldest first; those with an `attempt` await its answer. One that has ended stays
        # until it is the oldest: leaders know the last five sequences, not the last five answers.
        self.in_flight: deque[OutgoingBatch] = deque()
        self.is_stalled = False
        self.is_draining = False
        self.resume_at_ms = 0.0

    def __repr__(self) -> str:
        state = "draining" if self.is_draining else "stalled" if self.is_stalled else "open"
        return f"<Lane {state} queued={len(self.queue)} in_flight={len(self.in_flight)} next_seq={self._next_sequence}>"

    @property
    def needs_identity(self) -> bool:
        """Whether nothing can go on before a new producer id is there."""
        if not self._idempotent or not self.queue or self.in_flight:
            return False
        return self.identity is None or (self.is_draining and all(batch.sequence is None for batch in self.queue))

    def renew(self, identity: ProducerIdentity) -> None:
        """Number what has no sequence yet under a new producer id, from 0."""
        assert all(batch.sequence is None for batch in self.queue) and not self.in_flight
        self.identity, self._next_sequence, self.is_draining = identity, 0, False

    def begin_transaction(self, identity: ProducerIdentity) -> None:
        """As `renew`, for the next transaction: what the one before waited for is over."""
        self.renew(identity)
        self._backoff.reset()
        self.resume_at_ms, self.last_refusal = 0.0, None

    def maybe_take(self, attempt: int, now_ms: float) -> OutgoingBatch | None:
        """The batch to send now as ``attempt``, if any may be sent."""
        if self.is_stalled or now_ms < self.resume_at_ms or len(self.in_flight) >= self._max_in_flight:
            return None
        batch = self._next()
        if batch is None:
            return None
        self.queue.remove(batch)
        if self._idempotent and batch.sequence is None:
            batch.identity, batch.sequence = self.identity, self._next_sequence
            self._next_sequence = (self._next_sequence + batch.record_count) % SEQUENCE_MODULUS
        batch.attempt = attempt
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def _next(self) -> OutgoingBatch | None:
        if self.is_draining:
            return next((batch for batch in self.queue if batch.sequence is not None), None)
        if not self.queue or (self._idempotent and self.identity is None):
            return None
        return self.queue[0]

    def acknowledged(self, batch: OutgoingBatch, base_offset: Offset | None, now_ms: float) -> None:
        """The leader has it as asked."""
        self._backoff.reset()
        self.last_refusal = None
        self.retry.worked()
        batch.succeed(base_offset)
        self._maybe_settle(now_ms)

    def refused(self, batch: OutgoingBatch, refusal: Refusal, now_ms: float) -> None:
        """The leader did not acknowledge this attempt; without an outcome it may have been appended."""
        batch.attempt, batch.last_refusal = None, refusal
        self.last_refusal = refusal
        batch.may_have_appeared |= refusal.outcome is not Outcome.NOT_APPENDED
        decided = after_refusal(
            refusal,
            idempotent=self._idempotent,
            may_have_appeared=batch.may_have_appeared,
            behind_an_older=self._waits_for_an_older(batch),
            transactional=self._is_transactional,
        )
        if decided is AfterRefusal.ACKNOWLEDGED:
            self.acknowledged(batch, None, now_ms)
            return
        if decided is AfterRefusal.GIVEN_UP:
            self._give_up(batch, refusal.code, refusal.message)
        elif decided is AfterRefusal.NUMBERED_AGAIN:
            batch.identity, batch.sequence = None, None
            self.is_draining = True
        self.is_stalled = True
        self._maybe_settle(now_ms)

    def lost(self, batch: OutgoingBatch, now_ms: float, *, was_sent: bool, why: str) -> None:
        """No answer will come; ``was_sent`` is False only if not a byte of the attempt left this process."""
        outcome = Outcome.MAY_APPEAR if was_sent else Outcome.NOT_APPENDED
        self.refused(batch, Refusal(ErrorCode.NETWORK_EXCEPTION, why, outcome), now_ms)

    def _waits_for_an_older(self, batch: OutgoingBatch) -> bool:
        for other in self.in_flight:
            if other is batch:
                return False
            if other.sequence is not None and not other.is_done:
                return True
        return False

    def _give_up(self, batch: OutgoingBatch, code: ErrorCode, message: str) -> None:
        if batch not in self.in_flight:
            self.queue.remove(batch)
        if batch.sequence is not None:
            self.is_draining = True
        batch.fail(code, message)

    def _maybe_settle(self, now_ms: float) -> None:
        """Once nothing is under way after a failure: everything unanswered goes again, oldest first."""
        while self.in_flight and self.in_flight[0].is_done:
            self.in_flight.popleft()
        if not (self.is_stalled or self.is_draining) or any(batch.attempt is not None for batch in self.in_flight):
            return
        self.queue.extendleft(batch for batch in reversed(self.in_flight) if not batch.is_done)
        self.in_flight.clear()
        if self.is_draining:
            self._renumber_later()
        if self.is_stalled:
            self.is_stalled = False
            self.resume_at_ms = now_ms + self._backoff.next_s() * 1000

    def _renumber_later(self) -> None:
        """What was never written gives its number back, all of it: a part alone would overtake the rest."""
        for batch in self.queue:
            if batch.sequence is not None and not batch.may_have_appeared:
                batch.identity, batch.sequence = None, None

    def leader_is(self, leader: Leader, now_ms: float) -> bool:
        """Metadata names this leader; whether that is another one than before. A new epoch ends the waiting, and for
        numbered batches the attempts too: the new leader distinguishes a second copy from the first, so the old one's
        answer need not be awaited."""
        if leader.epoch == self._leader_epoch:
            return False
        is_first, self._leader_epoch = self._leader_epoch is None, leader.epoch
        if is_first:
            return False
        if self._idempotent and self.in_flight:
            for batch in self.in_flight:
                batch.attempt_lost()
            self.is_stalled = True
            self._maybe_settle(now_ms)
        self._backoff.reset()
        self.resume_at_ms = now_ms
        return True

    def expire(self, now_ms: float) -> list[OutgoingBatch]:
        """Give up every batch whose delivery time is over, with the last reason heard; they are returned."""
        waiting = [batch for batch in (*self.in_flight, *self.queue) if not batch.is_done]
        late = [batch for batch in waiting if batch.deadline_ms <= now_ms]
        for batch in late:
            last = batch.last_refusal or Refusal(ErrorCode.REQUEST_TIMED_OUT, "no leader answered")
            said = f"{last.message or last.code.name}; given up after delivery_timeout_ms"
            self.abandon([batch], last.code, said, now_ms)
        return late

    def abandon(self, batches: Iterable[OutgoingBatch], code: ErrorCode, message: str, now_ms: float) -> None:
        """Give these batches up, whatever is known of them."""
        for batch in [batch for batch in batches if not batch.is_done]:
            batch.attempt_lost()
            self._give_up(batch, code, message)
        self._maybe_settle(now_ms)
