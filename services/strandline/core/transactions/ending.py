"""Ends transactions: when their producers ask, or when they time out (X6, X7).

Invariant: each transaction has an epoch of its own, so a request to end one that arrives late ends no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode
from strandline.core.producer_ids import ProducerIdSupply
from strandline.core.transactions.decisions import prepared, raised, refusal_of_identity, refused, step, unavailable
from strandline.core.transactions.messages import EndTxn, ProducerIdentity, TxnEnded, TxnMarker
from strandline.core.transactions.records import COMPLETED, PREPARED, TransactionalId, TxnState
from strandline.core.transactions.reporting import Cause, TransactionChange
from strandline.core.types import TopicPartition


def end_txn(value: TransactionalId | None, request: EndTxn, context: Context, supply: ProducerIdSupply) -> Decision:
    """Decide a producer's request; ``value`` is None for an unknown id."""
    transactional_id = request.transactional_id
    # A copy of the request that ended it: by the present identity its sender would be fenced (X6).
    if value is not None and value.state in PREPARED | COMPLETED and request.identity == value.previous:
        return _again(value, request)
    refusal = refusal_of_identity(value, transactional_id, request.identity)
    if refusal is not None:
        return Decision(answer=refusal, scope=transactional_id)
    assert value is not None, "an id that is not known has no identity"
    if value.state is TxnState.ONGOING:
        return _decided(value, request, context, supply)
    return _ended_without_records(value, request, context, supply)


def _again(value: TransactionalId, request: EndTxn) -> Decision:
    """Answer a copy of the request that ended the last transaction, or the first request after a time-out."""
    transactional_id = request.transactional_id
    if value.commits is not request.committed:
        done = "committed" if value.commits else "aborted"
        message = (
            f"the transaction of {transactional_id!r} at epoch {request.identity.producer_epoch} is {done} already"
        )
        return refused(transactional_id, ErrorCode.INVALID_TXN_STATE, message)
    if value.state in PREPARED:
        message = f"the transaction of {transactional_id!r} is being ended; ask again"
        return refused(transactional_id, ErrorCode.CONCURRENT_TRANSACTIONS, message)
    return Decision(answer=TxnEnded(identity=value.identity), scope=transactional_id)


def _decided(value: TransactionalId, request: EndTxn, context: Context, supply: ProducerIdSupply) -> Decision:
    state = TxnState.PREPARE_COMMIT if request.committed else TxnState.PREPARE_ABORT
    after = prepared(value, state, request.identity, supply, context.unix_ms)
    if after is None:
        return unavailable(request.transactional_id)
    change = TransactionChange(request.transactional_id, value, after, _cause(request))
    return step(change, TxnEnded(identity=after.next_identity), used_producer_id=after.next_producer_id)


def _ended_without_records(
    value: TransactionalId, request: EndTxn, context: Context, supply: ProducerIdSupply
) -> Decision:
    # Without partitions no markers are needed; the epoch rises all the same, so that a copy finds its answer (X6).
    found = raised(value.identity, supply)
    if found is None:
        return unavailable(request.transactional_id)
    identity, used_id = found
    after = replace(
        value,
        identity=identity,
        previous=request.identity,
        state=TxnState.COMPLETE_COMMIT if request.committed else TxnState.COMPLETE_ABORT,
        update_ms=context.unix_ms,
    )
    change = TransactionChange(request.transactional_id, value, after, _cause(request))
    return step(change, TxnEnded(identity=identity), used_producer_id=used_id)


def _cause(request: EndTxn) -> Cause:
    return Cause.COMMITTED if request.committed else Cause.ABORTED


def timed_out(
    transactional_id: str, value: TransactionalId, context: Context, supply: ProducerIdSupply
) -> Decision | None:
    """The abort of a transaction that timed out; None while no producer id is available for it (X5)."""
    # Its producer learns of it when it ends the transaction, and recovers by an abort (X6).
    after = prepared(value, TxnState.PREPARE_ABORT, value.identity, supply, context.unix_ms)
    if after is None:
        return None
    change = TransactionChange(transactional_id, value, after, Cause.TIMEOUT)
    return step(change, used_producer_id=after.next_producer_id)


# ---- markers
# Which partitions of a decided transaction still lack their marker, and when each is asked again (X8).
#
# Invariant: a partition is done only when it has answered without a refusal, or its topic is deleted; at most one copy
# of its marker is under way. None of this survives a failover: then all markers are sent again.


class Markers:
    """The markers of one decided transaction."""

    def __init__(self, transactional_id: str, value: TransactionalId, now_ms: int) -> None:
        self.transactional_id = transactional_id
        self.identity: ProducerIdentity = value.identity
        self._committed = value.commits
        # When to send to each partition without a marker; None while a copy is under way.
        self._due_ms: dict[TopicPartition, int | None] = dict.fromkeys(value.partitions, now_ms)

    @property
    def missing(self) -> tuple[TopicPartition, ...]:
        """The partitions that have no marker yet, sorted."""
        return tuple(self._due_ms)

    def due(self, now_ms: int) -> tuple[TxnMarker, ...]:
        """The partitions to send to now; they count as under way from here on."""
        found = [tp for tp, due_ms in self._due_ms.items() if due_ms is not None and due_ms <= now_ms]
        self._due_ms.update(dict.fromkeys(found))
        return tuple(TxnMarker(self.transactional_id, self.identity, self._committed, tp) for tp in found)

    def written(self, tp: TopicPartition) -> None:
        """A partition has its marker, and it is committed there."""
        self._due_ms.pop(tp, None)

    def refused(self, tp: TopicPartition, again_ms: int) -> None:
        """A partition refused its marker, which is sent again at ``again_ms``."""
        if tp in self._due_ms:
            self._due_ms[tp] = again_ms

    def deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions were deleted and need no marker."""
        for tp in partitions:
            self._due_ms.pop(tp, None)
