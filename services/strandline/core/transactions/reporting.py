"""Decides which changes of transactional ids are state events: all the rare ones, and slow commits.

Transactions that commit within `REPORTED_AFTER_MS`, of which there may be thousands every second, are counted in one
row of a shard every `COALESCED_MS`. If one is open for longer, its beginning is reported then, that it is open once a
minute, and each further step. Identities, aborts, time-outs, fenced producers, forgotten ids and refused markers are
reported as they happen.

Invariant: memory is bounded by the transactions that are open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from strandline.core.coordinator.machine import Context, Reports
from strandline.core.errors import Refusal
from strandline.core.state_events import REPEATED, Number, TransactionChange as TransactionChangeEvent
from strandline.core.transactions.messages import TxnMarker
from strandline.core.transactions.records import PREPARED, TransactionalId, TxnState
from strandline.core.types import TopicPartition

# ---- happenings
# Changes of transactional ids as observers see them, with their causes.
#
# Invariant: an observer sees what was decided and written, never what was only requested; it changes nothing.


class Cause(StrEnum):
    """Why a transactional id changed."""

    INIT = "init"
    """A producer was given its identity."""
    BEGUN = "begun"
    """The first partition was added to a transaction."""
    ADDED = "added"
    """A further partition was added."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Its producer aborted it."""
    TIMEOUT = "timeout"
    FENCED = "fenced"
    """Another process, or its own after a restart, asked for the identity while a transaction was open."""
    COMPLETED = "completed"
    """The last partition has its marker."""
    EXPIRED = "expired"
    """It was unused for so long that it was forgotten."""


class TransactionChange(NamedTuple):
    """A transactional id changed: it is new if there is no ``before``, and forgotten if there is no ``after``."""

    transactional_id: str
    before: TransactionalId | None
    after: TransactionalId | None
    cause: Cause


class TransactionObserver(Protocol):
    """Called with changes after they were applied."""

    def changed(self, change: TransactionChange, now_ms: int) -> None:
        """A transactional id changed; not called while a log is loaded."""
        ...

    def marker_refused(self, marker: TxnMarker, refusal: Refusal, now_ms: int) -> None:
        """A partition says that this transaction is over, while its coordinator waits for it (X11): an alarm."""
        ...

    def ticked(self, ids: Mapping[str, TransactionalId], context: Context) -> None:
        """Time passed; ``ids`` are all known ids."""
        ...


REPORTED_AFTER_MS = 1_000
REPEATED_EVERY_MS = 60_000
COALESCED_MS = 10_000
_MARKER_REFUSED = "marker_refused"
_UNDER_WAY = PREPARED | {TxnState.ONGOING}
_ENDS = frozenset({Cause.COMMITTED, Cause.ABORTED, Cause.TIMEOUT, Cause.FENCED, Cause.COMPLETED, Cause.EXPIRED})
_ALWAYS = frozenset({Cause.INIT, Cause.ABORTED, Cause.TIMEOUT, Cause.FENCED, Cause.EXPIRED})


class TransactionReporting:
    """`TransactionObserver` of one shard."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._is_new = True
        # Ids with an open transaction; each transaction has an object of its own.
        self._open: dict[str, _Open] = {}
        # When each is checked next; each deque is in order of time.
        self._new: deque[tuple[int, str, _Open]] = deque()
        self._reported: deque[tuple[int, str, _Open]] = deque()
        self._refused: set[tuple[str, TopicPartition]] = set()
        self._n_committed = 0
        self._commits_since_ms = 0

    def changed(self, change: TransactionChange, now_ms: int) -> None:
        """A transactional id changed."""
        name = change.transactional_id
        if change.cause is Cause.BEGUN:
            self._watch(name, now_ms)
            return
        if change.cause is Cause.ADDED:
            return
        known = self._open.get(name)
        is_reported = known is not None and known.is_reported
        if change.cause is Cause.COMMITTED and not is_reported:
            if not self._n_committed:
                self._commits_since_ms = now_ms
            self._n_committed += 1
        elif is_reported or change.cause in _ALWAYS:
            if known is not None:
                known.is_reported = True
            self._report(change)
        if change.after is None or change.after.state not in _UNDER_WAY:
            self._open.pop(name, None)
            self._refused = {each for each in self._refused if each[0] != name}

    def marker_refused(self, marker: TxnMarker, refusal: Refusal, now_ms: int) -> None:
        """A partition calls a transaction over; reported once for each partition of it."""
        key = (marker.transactional_id, marker.tp)
        if key in self._refused:
            return
        self._refused.add(key)
        event = TransactionChangeEvent(
            transactional_id=marker.transactional_id,
            producer_id=marker.identity.producer_id,
            producer_epoch=Number(marker.identity.producer_epoch),
            old_state=None,
            new_state=None,
            cause=_MARKER_REFUSED,
            timeout_ms=None,
            n_partitions=None,
            txn_start_us=None,
            n_coalesced=1,
            coordinator_epoch=self._reports.leader_epoch,
            leader_epoch=None,
        )
        self._reports.add(event, marker.tp)

    def ticked(self, ids: Mapping[str, TransactionalId], context: Context) -> None:
        """Report the transactions that are open for long, and the commits of the last seconds."""
        if self._is_new:
            # Transactions of the loaded log, whose changes were not reported.
            self._is_new = False
            for name in [name for name, value in ids.items() if value.state in _UNDER_WAY and name not in self._open]:
                self._watch(name, context.now_ms)
        for waiting in (self._new, self._reported):
            while waiting and waiting[0][0] <= context.now_ms:
                _, name, known = waiting.popleft()
                if self._open.get(name) is known and name in ids:
                    self._report_open(name, ids[name], known)
                    self._reported.append((context.now_ms + REPEATED_EVERY_MS, name, known))
        if self._n_committed and context.now_ms - self._commits_since_ms >= COALESCED_MS:
            self._report_commits()

    def _watch(self, name: str, now_ms: int) -> None:
        known = self._open[name] = _Open()
        self._new.append((now_ms + REPORTED_AFTER_MS, name, known))

    def _report_open(self, name: str, value: TransactionalId, known: _Open) -> None:
        old = TxnState.EMPTY if not known.is_reported else value.state
        cause = REPEATED if known.is_reported else str(Cause.BEGUN)
        known.is_reported = True
        self._add(name, value, old_state=str(old), new_state=str(value.state), cause=cause)

    def _report(self, change: TransactionChange) -> None:
        before, after = change.before, change.after
        value = before if change.cause in _ENDS else after
        assert value is not None, f"a change of nothing: {change}"
        self._add(
            change.transactional_id,
            value,
            old_state=None if before is None else str(before.state),
            new_state=None if after is None else str(after.state),
            cause=str(change.cause),
        )

    def _add(
        self, name: str, value: TransactionalId, *, old_state: str | None, new_state: str | None, cause: str
    ) -> None:
        event = TransactionChangeEvent(
            transactional_id=name,
            producer_id=value.identity.producer_id,
            producer_epoch=Number(value.identity.producer_epoch),
            old_state=old_state,
            new_state=new_state,
            cause=cause,
            timeout_ms=value.timeout_ms,
            n_partitions=Number(len(value.partitions)),
            txn_start_us=None if value.start_ms is None else value.start_ms * 1_000,
            n_coalesced=1,
            coordinator_epoch=self._reports.leader_epoch,
            leader_epoch=self._reports.leader_epoch,
        )
        self._reports.add(event)

    def _report_commits(self) -> None:
        event = TransactionChangeEvent(
            transactional_id=None,
            producer_id=None,
            producer_epoch=None,
            old_state=str(TxnState.ONGOING),
            new_state=str(TxnState.PREPARE_COMMIT),
            cause=str(Cause.COMMITTED),
            timeout_ms=None,
            n_partitions=None,
            txn_start_us=None,
            n_coalesced=self._n_committed,
            coordinator_epoch=self._reports.leader_epoch,
            leader_epoch=self._reports.leader_epoch,
        )
        self._n_committed = 0
        self._reports.add(event)


class _Open:
    """One open transaction."""

    __slots__ = ("is_reported",)

    def __init__(self) -> None:
        self.is_reported = False
