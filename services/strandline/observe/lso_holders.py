"""Reports which transactions hold back the LSO of led partitions, since when, and their outcomes.

At any time at most one transaction holds back a partition's LSO: the undecided one with the lowest first offset, once
the HW has passed that offset. It is reported after `REPORTED_AFTER_MS`, then once a minute until it is decided, which
is reported too. For the many that are decided sooner, each partition reports one row per outcome in ten seconds: such
events are dropped last when there is no room, so there must be few of them.

Invariant: transactions are only read, when records are appended to their partition or its HW moves. Memory is bounded
by the size of the partitions' ledgers.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile

from strandline.core.log.effects import Effect, Emit
from strandline.core.log.leader import LeaderReplica
from strandline.core.state_events import Moment, Number, TransactionDecided, TransactionOpen
from strandline.core.types import Offset, TopicPartition

REPORTED_AFTER_MS = 1_000
"""A transaction that holds the LSO back for longer gets its own report."""
REPEATED_EVERY_MS = 60_000
HANGING_BEHIND_MS = 60_000
"""How much older than the longest time-out a transaction must be to be reported as hanging: by then a coordinator that
knows it would have aborted it (X7)."""
COALESCED_MS = 10_000

_OPEN, _INHERITED, _HANGING, _REPEATED = "open", "inherited", "hanging", "repeated"


class _Transaction:
    """One undecided transaction, as far as this leader knows it."""

    __slots__ = ("committed", "first_offset", "is_inherited", "producer_epoch", "producer_id", "start_ms")

    def __init__(
        self, first_offset: Offset, start_ms: int, producer_id: int | None, producer_epoch: int | None
    ) -> None:
        self.first_offset = first_offset
        self.start_ms = start_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.is_inherited = False
        self.committed = False


class _Hold:
    """A transaction that holds the LSO back."""

    __slots__ = ("is_reported", "said_hanging", "since_ms", "transaction")

    def __init__(self, transaction: _Transaction, since_ms: int) -> None:
        self.transaction = transaction
        self.since_ms = since_ms
        self.is_reported = False
        self.said_hanging = False


class _Coalesced:
    """Transactions of one outcome that are reported in one row."""

    __slots__ = ("count", "first_ms", "held_ms", "last_ms", "marker")

    def __init__(self, now_ms: int) -> None:
        self.first_ms = self.last_ms = now_ms
        self.count = self.held_ms = 0
        self.marker = Offset(0)

    def take(self, marker: Offset, held_ms: int, now_ms: int) -> None:
        self.marker, self.last_ms = marker, now_ms
        self.held_ms += held_ms
        self.count += 1


class _Partition:
    """The undecided transactions of one leader epoch, by first offset, and the decided ones not yet reported."""

    __slots__ = ("coalesced", "ended", "hold", "leader", "newest", "newest_marker", "undecided")

    def __init__(self, leader: LeaderReplica) -> None:
        self.leader = leader
        self.undecided: dict[Offset, _Transaction] = {}
        # The undecided ones that have a marker, with its offset.
        self.ended: deque[tuple[Offset, _Transaction]] = deque()
        self.newest = self.newest_marker = Offset(-1)
        self.hold: _Hold | None = None
        self.coalesced: dict[bool, _Coalesced] = {}


class LsoHolders:
    """The transactions that hold back the LSOs of the partitions that one node leads."""

    def __init__(self, longest_transaction_ms: int) -> None:
        """``longest_transaction_ms``: the longest time-out that a producer may ask for."""
        self._hanging_after_ms = longest_transaction_ms + HANGING_BEHIND_MS
        self.watched: dict[TopicPartition, _Partition] = {}
        """The led partitions that have a transaction, or recently had one. Changed only here."""
        # When holds and buckets are due, in order of time; the object shows whether the entry is still valid.
        self._new: deque[tuple[int, TopicPartition, _Hold]] = deque()
        self._repeated: deque[tuple[int, TopicPartition, _Hold]] = deque()
        self._buckets: deque[tuple[int, TopicPartition, bool, _Coalesced]] = deque()

    def leads(self, leader: LeaderReplica, now_ms: int) -> None:
        """Note that leadership began, perhaps with transactions of earlier epochs."""
        transactions = leader.log.producers.transactions
        if not transactions.open and not transactions.ended:
            return
        partition = self.watched[leader.log.tp] = _Partition(leader)
        ended = {each.marker_offset: each for each in transactions.ended}
        for marker in transactions.state().markers:
            # Its epoch is the marker's, which is higher than the transaction's.
            if (found := ended.get(marker.offset)) is not None:
                partition.undecided[found.first_offset] = _Transaction(
                    found.first_offset, now_ms, marker.producer_id, None
                )
        for each in transactions.ended:
            partition.undecided.setdefault(each.first_offset, _Transaction(each.first_offset, now_ms, None, None))
        self._took_in(partition, now_ms)
        partition.undecided = dict(sorted(partition.undecided.items()))
        for transaction in partition.undecided.values():
            transaction.is_inherited = True
        self._hold_moved(partition, now_ms)

    def leaves(self, leader: LeaderReplica, out: list[Effect]) -> None:
        """Note that leadership ends; undecided transactions are left to the next leader."""
        partition = self.watched.pop(leader.log.tp, None)
        if partition is not None:
            for committed in tuple(partition.coalesced):
                self._report_coalesced(partition, committed, out)

    def appended(self, leader: LeaderReplica, now_ms: int) -> None:
        """Note that records were appended to a partition with an undecided transaction."""
        partition = self.watched.get(leader.log.tp)
        if partition is None:
            partition = self.watched[leader.log.tp] = _Partition(leader)
        self._took_in(partition, now_ms)

    def _took_in(self, partition: _Partition, now_ms: int) -> None:
        """Add what is new in the ledger; transactions begin and end only at the log end."""
        producers = partition.leader.log.producers
        ledger = producers.transactions
        newest, newest_marker = partition.newest, partition.newest_marker
        begun = list(takewhile(lambda item: item[1] > newest, reversed(ledger.open.items())))
        for producer_id, first in reversed(begun):
            epoch = producers.newest_epoch(producer_id)
            partition.undecided[first] = _Transaction(first, now_ms, producer_id, epoch)
            partition.newest = first
        ended = list(takewhile(lambda each: each.marker_offset > newest_marker, reversed(ledger.ended)))
        for first, marker in reversed(ended):
            transaction = partition.undecided[first]
            transaction.committed = not ledger.aborted_between(marker, Offset(marker + 1))
            partition.ended.append((marker, transaction))
            partition.newest_marker = marker

    def hw_rose(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """Note that a partition's HW rose: markers may be committed now, and the LSO may be held back."""
        partition = self.watched.get(leader.log.tp)
        if partition is None:
            return
        while partition.ended and partition.ended[0][0] < leader.log.hw:
            self._decided(partition, *partition.ended.popleft(), now_ms, out)
        self._hold_moved(partition, now_ms)
        self._maybe_forget(partition)

    def _decided(
        self, partition: _Partition, marker: Offset, transaction: _Transaction, now_ms: int, out: list[Effect]
    ) -> None:
        del partition.undecided[transaction.first_offset]
        hold = partition.hold if partition.hold and partition.hold.transaction is transaction else None
        held_ms = now_ms - hold.since_ms if hold else 0
        if hold is not None and hold.is_reported:
            alone = _Coalesced(now_ms)
            alone.take(marker, held_ms, now_ms)
            self._report_decided(partition, transaction.committed, alone, out, transaction)
            return
        bucket = partition.coalesced.get(transaction.committed)
        if bucket is None:
            bucket = partition.coalesced[transaction.committed] = _Coalesced(now_ms)
            self._buckets.append((now_ms + COALESCED_MS, partition.leader.log.tp, transaction.committed, bucket))
        bucket.take(marker, held_ms, now_ms)

    def _hold_moved(self, partition: _Partition, now_ms: int) -> None:
        """Update the holder: the first undecided transaction, once the HW has passed its first offset."""
        first = next(iter(partition.undecided.values()), None)
        if first is not None and first.first_offset >= partition.leader.log.hw:
            first = None
        if first is not (partition.hold.transaction if partition.hold else None):
            partition.hold = None
            if first is not None:
                partition.hold = _Hold(first, now_ms)
                self._new.append((now_ms + REPORTED_AFTER_MS, partition.leader.log.tp, partition.hold))

    def ticked(self, now_ms: int, out: list[Effect]) -> None:
        """Make the reports that are due."""
        for holds in (self._new, self._repeated):
            while holds and holds[0][0] <= now_ms:
                _, tp, hold = holds.popleft()
                partition = self.watched.get(tp)
                if partition is not None and partition.hold is hold:
                    self._report_hold(partition, hold, now_ms, out)
        while self._buckets and self._buckets[0][0] <= now_ms:
            _, tp, committed, bucket = self._buckets.popleft()
            partition = self.watched.get(tp)
            if partition is not None and partition.coalesced.get(committed) is bucket:
                self._report_coalesced(partition, committed, out)
                self._maybe_forget(partition)

    def _maybe_forget(self, partition: _Partition) -> None:
        if not partition.undecided and not partition.coalesced:
            del self.watched[partition.leader.log.tp]

    def _report_hold(self, partition: _Partition, hold: _Hold, now_ms: int, out: list[Effect]) -> None:
        transaction = hold.transaction
        hangs = not hold.said_hanging and now_ms - transaction.start_ms >= self._hanging_after_ms
        new = _INHERITED if transaction.is_inherited else _OPEN
        event = TransactionOpen(
            producer_id=transaction.producer_id,
            producer_epoch=_number(transaction.producer_epoch),
            first_offset=transaction.first_offset,
            held_since_ms=Moment(hold.since_ms),
            txn_start_ms=Moment(transaction.start_ms),
            hw=partition.leader.log.hw,
            cause=_HANGING if hangs else _REPEATED if hold.is_reported else new,
            leader_epoch=partition.leader.image.leader_epoch,
            partition_epoch=partition.leader.isr.partition_epoch,
        )
        hold.is_reported = True
        hold.said_hanging = hold.said_hanging or hangs
        out.append(Emit(partition.leader.log.tp, event))
        self._repeated.append((now_ms + REPEATED_EVERY_MS, partition.leader.log.tp, hold))

    def _report_coalesced(self, partition: _Partition, committed: bool, out: list[Effect]) -> None:
        self._report_decided(partition, committed, partition.coalesced.pop(committed), out)

    def _report_decided(
        self,
        partition: _Partition,
        committed: bool,
        bucket: _Coalesced,
        out: list[Effect],
        alone: _Transaction | None = None,
    ) -> None:
        """One row; ``alone``: the one transaction that it is of."""
        event = TransactionDecided(
            producer_id=alone.producer_id if alone else None,
            producer_epoch=_number(alone.producer_epoch) if alone else None,
            first_offset=alone.first_offset if alone else None,
            marker_offset=bucket.marker,
            outcome="commit" if committed else "abort",
            held_ms=bucket.held_ms,
            first_ms=Moment(bucket.first_ms),
            last_ms=Moment(bucket.last_ms),
            n_coalesced=bucket.count,
            leader_epoch=partition.leader.image.leader_epoch,
            partition_epoch=partition.leader.isr.partition_epoch,
        )
        out.append(Emit(partition.leader.log.tp, event))


def _number(epoch: int | None) -> Number | None:
    return None if epoch is None else Number(epoch)
