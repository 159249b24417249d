"""Decides whether an idempotent batch is next in its producer's sequence, a duplicate, or out of order (M61).

Invariant: the ledger is a function of the log alone: it is folded from the batches below the LEO, by
leaders, followers and recovery alike, so a new leader refuses and recognises what the old one would have.
The batches of a producer and its transactions are folded together, because a marker restarts its sequences (X11).
Source: KIP-98.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, KeysView
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.types import (
    CONTROL_BIT,
    NO_TRANSACTIONS,
    OF_TRANSACTIONS,
    AbortedTransaction,
    ActiveProducer,
    BatchHeader,
    EndedTransaction,
    LastMarker,
    Marker,
    Offset,
    OpenTransaction,
    ProducerBatch,
    ProducerStamp,
    TransactionState,
)

# ---- transactions
# Decides what the transactional batches and markers of a log come to: open, ended, aborted, fenced (X11 to X13).
#
# Invariant: the ledger is a function of the log alone, folded by leaders, followers and recovery alike. Whether an end
# is final is not: a marker counts once it is below the high watermark, which `settled` is given.


class MarkerVerdict(Enum):
    """What a marker means to a log that it was sent to (X11)."""

    APPEND = "append"
    """It ends the open transaction, or fences a producer that never wrote here."""
    KNOWN = "known"
    """A copy of the last marker: nothing is appended, and it is done once that marker is committed (KAFKA-19999)."""
    FENCED_COORDINATOR = "fenced_coordinator"
    OLD_EPOCH = "old_epoch"
    LATE_COPY = "late_copy"
    """Of the epoch of the open transaction, which only the marker of the epoch after it can end (KAFKA-19446)."""


def judge_marker(
    producer_epoch: int, marker: Marker, *, known_epoch: int, marked: tuple[int, int] | None, is_open: bool
) -> MarkerVerdict:
    """What a marker is to a log, or to a coordinator of groups, by what that knows of its producer (X11, X16):
    ``known_epoch``, the newest epoch that is remembered, -1 without one; ``marked``, producer epoch and coordinator
    epoch of its last marker; ``is_open``, whether something of the producer waits for a marker."""
    marked_epoch, marked_by = marked or (-1, -1)
    if marker.coordinator_epoch < marked_by:
        return MarkerVerdict.FENCED_COORDINATOR
    if producer_epoch > known_epoch:
        return MarkerVerdict.APPEND
    if producer_epoch < known_epoch:
        # A marker of a later epoch, an administrator's for one, ended what this one would end.
        is_over = not is_open and producer_epoch < marked_epoch
        return MarkerVerdict.KNOWN if is_over else MarkerVerdict.OLD_EPOCH
    if is_open:
        return MarkerVerdict.LATE_COPY
    # Nothing is open, so the marker of a newer coordinator ends nothing, but it fences the older one (X11).
    is_new = marked is None or marker.coordinator_epoch > marked_by
    return MarkerVerdict.APPEND if is_new else MarkerVerdict.KNOWN


def marker_refusal(verdict: MarkerVerdict, sent: ProducerStamp, marker: Marker) -> Refusal:
    """Why a marker with this verdict is refused; None if it is not (X11)."""
    if verdict is MarkerVerdict.FENCED_COORDINATOR:
        return Refusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator_epoch {marker.coordinator_epoch} is older than that of a marker of producer "
            f"{sent.producer_id} here; a newer coordinator decides",
            Outcome.NOT_APPENDED,
        )
    if verdict is MarkerVerdict.OLD_EPOCH:
        why = "is older than one already seen"
    else:
        why = "is that of its open transaction, which only a marker of the next epoch ends"
    message = f"producer_epoch {sent.producer_epoch} of producer {sent.producer_id} {why}"
    return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, message, Outcome.NOT_APPENDED)


def as_producers_hear(refusal: Refusal) -> Refusal:
    """A coordinator's refusal as it is sent to a producer: one whose transaction timed out recovers from
    INVALID_PRODUCER_EPOCH by an abort, which shows whether it is fenced for good (KAFKA-19690)."""
    if refusal.code is not ErrorCode.PRODUCER_FENCED:
        return refusal
    return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, refusal.message, refusal.outcome)


class TransactionLedger:
    """The transactions of one log, up to the offset up to which it was folded."""

    __slots__ = ("_aborted", "_markers", "ended", "open")

    def __init__(self, state: TransactionState = NO_TRANSACTIONS) -> None:
        self.open: dict[int, Offset] = dict(state.open)
        """Producer id -> first offset, in the order in which they began. Changed here alone."""
        self.ended: list[EndedTransaction] = list(state.ended)
        """Those whose marker may be lost again, by marker. Changed here alone."""
        self._aborted: list[AbortedTransaction] = list(state.aborted)
        self._markers: dict[int, LastMarker] = {marker.producer_id: marker for marker in state.markers}

    @property
    def first_unstable(self) -> Offset | None:
        """The first offset of a transaction that is not decided for good; None without one (X12)."""
        first = next(iter(self.open.values()), None)
        for transaction in self.ended:
            if first is None or transaction.first_offset < first:
                first = transaction.first_offset
        return first

    def last_marker(self, producer_id: int) -> LastMarker | None:
        """The newest marker of a producer, None without one."""
        return self._markers.get(producer_id)

    @property
    def marked_producers(self) -> KeysView[int]:
        """The ids of the producers of which a marker is remembered."""
        return self._markers.keys()

    def judge(
        self, producer_id: int, producer_epoch: int, marker: Marker, newest_epoch: int | None
    ) -> tuple[MarkerVerdict, LastMarker | None]:
        """What a marker is to this log, with the last one of its producer (X11). ``newest_epoch``: of the producer's
        batches in this log; None if none is remembered."""
        last = self._markers.get(producer_id)
        verdict = judge_marker(
            producer_epoch,
            marker,
            known_epoch=max(-1 if newest_epoch is None else newest_epoch, -1 if last is None else last.producer_epoch),
            marked=None if last is None else (last.producer_epoch, last.coordinator_epoch),
            is_open=producer_id in self.open,
        )
        return verdict, last

    def began(self, producer_id: int, first_offset: Offset) -> None:
        """A transactional batch was appended; the first one since the producer's last marker opens a transaction."""
        self.open.setdefault(producer_id, first_offset)

    def marked(self, header: BatchHeader, offset: Offset) -> None:
        """A marker was appended at ``offset``: it ends what its producer has open, if anything."""
        marker, sent = header.marker, header.producer
        assert marker is not None and sent is not None, f"the control batch at {offset} is not a marker"
        producer_id = sent.producer_id
        self._markers[producer_id] = LastMarker(
            producer_id, sent.producer_epoch, marker.coordinator_epoch, offset, header.max_timestamp_ms
        )
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return
        self.ended.append(EndedTransaction(first_offset, offset))
        if not marker.committed:
            stable = next(iter(self.open.values()), Offset(offset + 1))
            self._aborted.append(AbortedTransaction(producer_id, first_offset, offset, stable))

    def settled(self, committed: Offset) -> None:
        """Everything below ``committed`` is committed: what markers below it ended stays ended."""
        self.ended = [transaction for transaction in self.ended if transaction.marker_offset >= committed]

    def aborted_between(self, start: Offset, end: Offset) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with an offset from ``start`` up to, not including, ``end``, by marker (X15)."""
        if not self._aborted:
            return ()
        found: list[AbortedTransaction] = []
        for index in range(bisect_left(self._aborted, start, key=attrgetter("marker_offset")), len(self._aborted)):
            transaction = self._aborted[index]
            if transaction.first_offset < end:
                found.append(transaction)
            if transaction.last_stable_offset >= end:
                # Whatever ended later began at or above it.
                break
        return tuple(found)

    def log_begins_at(self, offset: Offset) -> None:
        """Nothing below ``offset`` is read any more: what was aborted wholly below it is forgotten."""
        if self._aborted and self._aborted[0].marker_offset < offset:
            self._aborted = [transaction for transaction in self._aborted if transaction.marker_offset >= offset]

    def state(self) -> TransactionState:
        """Everything that is remembered."""
        if not (self.open or self.ended or self._aborted or self._markers):
            return NO_TRANSACTIONS
        return TransactionState(
            tuple(OpenTransaction(*transaction) for transaction in self.open.items()),
            tuple(self.ended),
            tuple(self._aborted),
            tuple(self._markers.values()),
        )

    def state_below(self, offset: Offset) -> TransactionState:
        """What a log that begins at ``offset`` must know, so that it comes to this state by its own batches (C43)."""
        # Open there is also what a marker at or above the offset aborted. What was committed there is left out: its
        # records are given whether or not it is known.
        was_open = [OpenTransaction(*item) for item in self.open.items() if item[1] < offset]
        was_open += [
            OpenTransaction(transaction.producer_id, transaction.first_offset)
            for transaction in self._aborted
            if transaction.first_offset < offset <= transaction.marker_offset
        ]
        # Those of one producer do not overlap, so none is named twice.
        was_open.sort(key=lambda transaction: transaction.first_offset)
        return TransactionState(
            open=tuple(was_open),
            markers=tuple(marker for marker in self._markers.values() if marker.offset < offset),
        )


# As many as Kafka's producers may have in flight: a retry of the oldest must still be recognized (KIP-98).
REMEMBERED_BATCHES = 5
SEQUENCE_MODULUS = 1 << 31
"""Sequences wrap from 2^31 - 1 to 0, as in Kafka."""


class SequenceVerdict(Enum):
    """What a batch's producer id, epoch and sequence say about it."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out_of_order"
    TOO_OLD = "too_old"
    FENCED = "fenced"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SequenceCheck:
    """The verdict, and for a duplicate where its first append lies."""

    verdict: SequenceVerdict
    first: ProducerBatch | None = None
    expected_sequence: int | None = None


_NEXT = SequenceCheck(SequenceVerdict.NEXT)


def sequence_after(sequence: int, count: int = 1) -> int:
    """The sequence ``count`` steps after ``sequence``, wrapped."""
    return (sequence + count) % SEQUENCE_MODULUS


class ProducerLedger:
    """The last batches of every idempotent producer of one log, and the transactions they are part of."""

    __slots__ = ("_batches", "transactions")

    def __init__(self, rows: Iterable[ProducerBatch] = (), transactions: TransactionState = NO_TRANSACTIONS) -> None:
        self._batches: dict[int, list[ProducerBatch]] = {}
        self.transactions = TransactionLedger(transactions)
        for row in rows:
            self._remember(row)

    def check(self, header: BatchHeader, *, log_start_offset: Offset = Offset(0)) -> SequenceCheck:
        """Judge a batch before its append. A batch without a producer id is always NEXT."""
        sent = header.producer
        if sent is None:
            return _NEXT
        known = self._batches.get(sent.producer_id)
        if not known:
            marker = self.transactions.last_marker(sent.producer_id)
            if marker is not None and sent.producer_epoch < marker.producer_epoch:
                return SequenceCheck(SequenceVerdict.FENCED)
            if sent.base_sequence == 0:
                return _NEXT
            if marker is not None:
                # Nothing of this epoch was appended since the marker, or it would be remembered.
                return SequenceCheck(SequenceVerdict.OUT_OF_ORDER, expected_sequence=0)
            # In a whole log, whatever else the producer sent was not appended. Below the start of a shortened one this
            # very batch may have been, deleted before its sender got an answer; Kafka accepts it, and could append it
            # twice.
            verdict = SequenceVerdict.UNKNOWN if log_start_offset > 0 else SequenceVerdict.OUT_OF_ORDER
            return SequenceCheck(verdict, expected_sequence=0)
        newest = known[-1]
        if sent.producer_epoch < newest.producer_epoch:
            return SequenceCheck(SequenceVerdict.FENCED)
        if sent.producer_epoch > newest.producer_epoch:
            if sent.base_sequence == 0:
                return _NEXT
            return SequenceCheck(SequenceVerdict.OUT_OF_ORDER, expected_sequence=0)
        return self._check_same_epoch(sent, header.record_count, known)

    def _check_same_epoch(self, sent: ProducerStamp, records: int, known: list[ProducerBatch]) -> SequenceCheck:
        last_sequence = sequence_after(sent.base_sequence, records - 1)
        for row in known:
            same_epoch = row.producer_epoch == sent.producer_epoch
            if same_epoch and (row.first_sequence, row.last_sequence) == (sent.base_sequence, last_sequence):
                return SequenceCheck(SequenceVerdict.DUPLICATE, row)
        expected = sequence_after(known[-1].last_sequence)
        if sent.base_sequence == expected:
            return _NEXT
        behind = (expected - sent.base_sequence) % SEQUENCE_MODULUS
        # Sequences wrap, so the shorter way round decides between a batch that is old and one that comes too early.
        if behind < SEQUENCE_MODULUS // 2:
            return SequenceCheck(SequenceVerdict.TOO_OLD, expected_sequence=expected)
        return SequenceCheck(SequenceVerdict.OUT_OF_ORDER, expected_sequence=expected)

    def observe(self, header: BatchHeader, base_offset: Offset) -> None:
        """Remember an appended batch."""
        sent = header.producer
        if sent is None:
            return
        if header.attributes & OF_TRANSACTIONS:
            if header.marker is not None:
                self._marked(header, sent, base_offset)
            if header.attributes & CONTROL_BIT:
                return
            self.transactions.began(sent.producer_id, base_offset)
        self._remember(
            ProducerBatch(
                sent.producer_id,
                sent.producer_epoch,
                sent.base_sequence,
                sequence_after(sent.base_sequence, header.record_count - 1),
                base_offset,
                Offset(base_offset + header.record_count - 1),
                header.max_timestamp_ms,
            )
        )

    def newest_epoch(self, producer_id: int) -> int | None:
        """The epoch of the newest remembered batch of a producer; None if none is remembered."""
        known = self._batches.get(producer_id)
        return known[-1].producer_epoch if known else None

    def _marked(self, header: BatchHeader, sent: ProducerStamp, offset: Offset) -> None:
        self.transactions.marked(header, offset)
        newest_epoch = self.newest_epoch(sent.producer_id)
        # The marker fences the epochs below its own: what they sent can no longer be retried.
        if newest_epoch is not None and newest_epoch < sent.producer_epoch:
            del self._batches[sent.producer_id]

    def rows(self) -> tuple[ProducerBatch, ...]:
        """Everything remembered, per producer oldest first."""
        return tuple(row for rows in self._batches.values() for row in rows)

    def active(self) -> tuple[ActiveProducer, ...]:
        """What is remembered of each producer, by producer id."""
        known = set(self._batches) | self.transactions.marked_producers
        return tuple(self._active(producer_id) for producer_id in sorted(known))

    def _active(self, producer_id: int) -> ActiveProducer:
        transactions, batches = self.transactions, self._batches.get(producer_id)
        marker = transactions.last_marker(producer_id)
        if batches:
            epoch, sequence, timestamp_ms = (
                batches[-1].producer_epoch,
                batches[-1].last_sequence,
                batches[-1].timestamp_ms,
            )
        else:
            assert marker is not None, f"producer {producer_id} has neither a batch nor a marker"
            epoch, sequence, timestamp_ms = marker.producer_epoch, None, marker.timestamp_ms
        coordinator_epoch = None if marker is None else marker.coordinator_epoch
        open_since = transactions.open.get(producer_id)
        return ActiveProducer(producer_id, epoch, sequence, timestamp_ms, coordinator_epoch, open_since)

    def rows_below(self, offset: Offset, most: int) -> tuple[ProducerBatch, ...]:
        """The remembered batches that end below ``offset``, per producer oldest first; the newest ``most`` of them."""
        found = [row for row in self.rows() if row.last_offset < offset]
        if len(found) > most:
            newest = sorted(row.last_offset for row in found)[-most]
            found = [row for row in found if row.last_offset >= newest]
        return tuple(found)

    def _remember(self, row: ProducerBatch) -> None:
        rows = self._batches.setdefault(row.producer_id, [])
        if rows and rows[-1].producer_epoch != row.producer_epoch:
            # A new producer epoch restarts its sequences; older ones can no longer be retried.
            rows.clear()
        rows.append(row)
        if len(rows) > REMEMBERED_BATCHES:
            del rows[0]
