"""Mutants of transactions: markers, epochs, identities, and what readers of committed records get."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from mutants.mutant import Real, mutant

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.log.effects import Effect
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.producers import MarkerVerdict, SequenceCheck, SequenceVerdict, TransactionLedger
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.producer_ids import ProducerIdSupply
from strandline.core.serving.produce import ProduceServing
from strandline.core.serving.produce_checks import ParkedProduce
from strandline.core.transactions import decisions, ending
from strandline.core.transactions.ending import Markers
from strandline.core.transactions.messages import EndTxn, InitProducerId, ProducerIdentity
from strandline.core.transactions.records import TransactionalId, TxnState
from strandline.core.types import AbortedTransaction, Acks, LastMarker, Marker, Offset, TopicPartition

# R59, R63, R64, R86: markers that end another transaction, or count before every partition has them for good.

_FILE = "tests/sim/test_transactions_search.py"
_SEARCH = f"{_FILE}::test_the_first_worlds_of_two_transactions_hold"
_LATE = f"{_FILE}::test_a_late_copy_of_the_first_transaction_changes_nothing"
_searched = partial(mutant, tests=_SEARCH, profiles="transactions", layers="tests scenarios seeds")


@_searched(TransactionLedger, "judge", "x11_late_marker", tests=_LATE)
def _ends_what_is_open(
    real: Real, self: TransactionLedger, producer_id: int, producer_epoch: int, marker: Marker, newest: int | None
) -> tuple[MarkerVerdict, LastMarker | None]:
    """R59: a marker of equal epoch ends a transaction (X11; KAFKA-19446, and KAFKA-14402 before version 2).

    A late copy of the last transaction's marker ends the next one.
    """
    verdict, last = real(self, producer_id, producer_epoch, marker, newest)
    return (MarkerVerdict.APPEND if verdict is MarkerVerdict.LATE_COPY else verdict), last


@_searched(ProduceServing, "_appended", "x11_repeated_marker")
def _answered_at_once(
    real: Real,
    self: ProduceServing,
    part: ProducePartition,
    base: Offset,
    end: Offset,
    acks: Acks,
    leader: LeaderReplica,
) -> tuple[ProduceResult, Offset | None]:
    """R63: markers answered before their HW (X8, X11).

    The coordinator counts a marker that is lost with its leader.
    """
    result, wait = real(self, part, base, end, acks, leader)
    return result, wait if part.header.marker is None else None


@_searched(ProduceServing, "_judge_marker", "x11_repeated_marker")
def _copies_answered_at_once(
    real: Real, self: ProduceServing, part: ProducePartition, marker: Marker, leader: LeaderReplica
) -> tuple[ProduceResult, Offset | None] | None:
    """R86: a repeated marker answered before the first is committed (X11; KAFKA-19999).

    A copy of a marker that may still be lost is answered as done.
    """
    settled = real(self, part, marker, leader)
    return None if settled is None else (settled[0], None)


@mutant(Markers, "written", tests=_SEARCH, profiles="transactions", layers="tests seeds", pure=False)
def _one_is_enough(real: Real, self: Markers, tp: TopicPartition) -> None:
    """R64: complete before all markers (X8).

    A transaction counts as ended as soon as one partition has its marker.
    """
    if len(self._due_ms) > 1:
        real.differs()
    self._due_ms.clear()


# R60, 79, 80: epochs that do not tell one transaction from the next.


@_searched(decisions, "prepared", "x06_late_end")
def _same_epoch(real: Real, value: TransactionalId, *given: Any) -> TransactionalId | None:
    """R60: no epoch raised per transaction (X6; KIP-890, Jepsen on Bufstream 2024).

    All transactions of a process have one epoch, so that a late message lands in the next one.
    """
    after: TransactionalId | None = real(value, *given)
    return None if after is None else replace(after, identity=value.identity)


@_searched(ending, "end_txn", "x06_late_end")
def _whatever_epoch(
    real: Real, value: TransactionalId | None, request: EndTxn, context: Context, supply: ProducerIdSupply
) -> Decision:
    """79: a late EndTxn of an old epoch is taken (X6; KAFKA-17754).

    A copy of the request that ended one transaction ends the next.
    """
    if value is not None and value.state is TxnState.ONGOING:
        request = replace(request, identity=value.identity)
    return real(value, request, context, supply)


@_searched(ending, "timed_out", "x09_timed_out_producer")
def _twice(
    real: Real, name: str, value: TransactionalId, context: Context, supply: ProducerIdSupply
) -> Decision | None:
    """80: a time-out raises the epoch twice (X7; KAFKA-19367).

    The producer of a transaction that timed out is fenced, and cannot go on by an abort.
    """
    later = value.identity._replace(producer_epoch=value.identity.producer_epoch + 1)
    return real(name, replace(value, identity=later), context, supply)


@_searched(ProduceServing, "_append", "x10_late_consent", pure=False)
def _appends_what_is_verified(
    real: Real,
    self: ProduceServing,
    part: ProducePartition,
    call: ParkedProduce,
    index: int,
    now_ms: int,
    grown: dict[TopicPartition, Offset],
    out: list[Effect],
    *,
    verified: bool = False,
) -> tuple[ProduceResult, Offset | None]:
    """R61: no second look after verification (X10; KAFKA-14402, KAFKA-18401).

    A batch whose transaction was ended while the coordinator's answer was on its way is appended.
    """
    if not verified:
        return real(self, part, call, index, now_ms, grown, out)
    real.differs()
    leader = self._state.leaders[part.tp]
    grown.setdefault(part.tp, leader.log.leo)
    base = leader.log.append_as_leader(part.header, part.payload, leader.image.leader_epoch, out)
    return self._appended(part, base, leader.log.leo, call.acks, leader)


# R62, 78: readers of committed records are given too much.


@_searched(ReplicaLog, "lso", "table_transaction")
def _high_watermark(real: Real, self: ReplicaLog) -> Offset:
    """R62: the LSO is the HW (X12; Jepsen on Redpanda 21.10).

    A reader of committed records is given what may yet be aborted.
    """
    return self.hw


@mutant(
    TransactionLedger,
    "aborted_between",
    tests="tests/core/test_producer_snapshot.py",
    profiles="transactions",
    layers="tests seeds",
)
def _begun_in_range(real: Real, self: TransactionLedger, start: Offset, end: Offset) -> tuple[AbortedTransaction, ...]:
    """78: the list of aborted transactions begins at the fetch offset (X15).

    The rest of an aborted transaction is given to a reader that begins within it.
    """
    return tuple(transaction for transaction in real(self, start, end) if transaction.first_offset >= start)


# 87 to 90: identities raised too often, not at all or past their end, and errors that end a healthy process.

_FENCED = Refusal(ErrorCode.PRODUCER_FENCED, "another process has the transactional id", Outcome.NOT_APPENDED)


@mutant(decisions, "_fenced", "x04_aborted_once", layers="scenarios")
def _raised_for_the_abort_too(
    real: Real, value: TransactionalId, request: InitProducerId, context: Context, supply: ProducerIdSupply
) -> Decision:
    """87: fencing raises the epoch twice (X4; KAFKA-19367).

    The abort for a new process raises the epoch a second time, past that of any producer or marker.
    """
    later = value.identity._replace(producer_epoch=value.identity.producer_epoch + 1)
    return real(replace(value, identity=later), request, context, supply)


@mutant(decisions, "prepared", "x05_last_epoch", layers="scenarios")
def _past_the_end(
    real: Real,
    value: TransactionalId,
    state: TxnState,
    previous: ProducerIdentity | None,
    supply: ProducerIdSupply,
    unix_ms: int,
) -> TransactionalId | None:
    """88: epochs go past their end (X5; KAFKA-18660).

    A producer at the last epoch is given the next one, which does not fit into 16 bits.
    """
    after: TransactionalId | None = real(value, state, previous, supply, unix_ms)
    return None if after is None else replace(after, next_producer_id=None)


@mutant(ending, "_ended_without_records", "x06_empty_transaction", layers="scenarios")
def _not_without_records(
    real: Real, value: TransactionalId, request: EndTxn, context: Context, supply: ProducerIdSupply
) -> Decision:
    """89: a transaction without records is refused (X6; KAFKA-18401).

    A process that commits and has written nothing is called wrong.
    """
    message = f"{request.transactional_id!r} has no transaction"
    return Decision(answer=Refusal(ErrorCode.INVALID_TXN_STATE, message), scope=request.transactional_id)


@mutant(ProduceServing, "_out_of_sequence", "x09_timed_out_producer", layers="scenarios")
def _fenced_for_good(
    real: Real, self: ProduceServing, part: ProducePartition, check: SequenceCheck, acks: Acks, leader: LeaderReplica
) -> tuple[ProduceResult, Offset | None]:
    """90: a producer of an old epoch is fenced (X9; KAFKA-19690).

    A producer whose transaction timed out is told by a partition that another process has its id.
    """
    if check.verdict is SequenceVerdict.FENCED:
        return self._refused(part, _FENCED), None
    return real(self, part, check, acks, leader)
