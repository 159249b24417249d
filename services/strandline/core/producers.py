"""Decides whether an idempotent batch is next in its producer's sequence, a duplicate, or out of order (M61).

Invariant: the ledger is a function of the log alone: it is folded from the batches below the LEO, by
leaders, followers and recovery alike, so a new leader refuses and recognises what the old one would have.
The batches of a producer and its transactions are folded together, because a marker restarts its sequences (X11).
Sources: KIP-98; at most five batches are remembered per producer id, as many as may be in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from strandline.core.transactions import TransactionLedger
from strandline.core.types import (
    CONTROL_BIT,
    NO_TRANSACTIONS,
    OF_TRANSACTIONS,
    ActiveProducer,
    BatchHeader,
    Offset,
    ProducerBatch,
    ProducerStamp,
    TransactionState,
)

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
        """Judge a batch before its append. A batch without a producer id is always NEXT.

        A producer that is unknown here begins at sequence 0. In a whole log whatever else it sent was not appended.
        Below the start of a log that has lost its beginning (``log_start_offset`` > 0) this very batch may have lain,
        deleted before its sender got an answer; accepting it at any sequence, as Kafka does, could append it twice.
        """
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
        """A marker fences the epochs below its own: what they sent can no longer be retried."""
        self.transactions.marked(header, offset)
        newest_epoch = self.newest_epoch(sent.producer_id)
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
