"""Mutants of transactions: markers, epochs, identities, and what readers of committed records get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.log.effects import Effect
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.producer_id_blocks import ProducerIdSupply
from strandline.core.log.producers import MarkerVerdict, SequenceCheck, SequenceVerdict, TransactionLedger
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.serving.produce import ProduceServing
from strandline.core.serving.produce_checks import ParkedProduce
from strandline.core.transactions import decisions, ending
from strandline.core.transactions.ending import Markers
from strandline.core.transactions.messages import EndTxn, InitProducerId, ProducerIdentity
from strandline.core.transactions.records import TransactionalId, TxnState
from strandline.core.types import AbortedTransaction, Acks, LastMarker, Marker, Offset, TopicPartition

MUTANTS: tuple[Mutant, ...] = ()


# R59, R63, R64, R86: markers that end another transaction, or count before every partition has them for good.

_FILE = "tests/sim/test_transactions_search.py"
_SEARCH = f"{_FILE}::test_the_first_worlds_of_two_transactions_hold"
_LATE = f"{_FILE}::test_a_late_copy_of_the_first_transaction_changes_nothing"


def _ends_what_is_open(
    real: Real, self: TransactionLedger, producer_id: int, producer_epoch: int, marker: Marker, newest: int | None
) -> tuple[MarkerVerdict, LastMarker | None]:
    verdict, last = real(self, producer_id, producer_epoch, marker, newest)
    return (MarkerVerdict.APPEND if verdict is MarkerVerdict.LATE_COPY else verdict), last


def _answered_at_once(
    real: Real,
    self: ProduceServing,
    part: ProducePartition,
    base: Offset,
    end: Offset,
    acks: Acks,
    leader: LeaderReplica,
) -> tuple[ProduceResult, Offset | None]:
    result, wait = real(self, part, base, end, acks, leader)
    return result, wait if part.header.marker is None else None


def _copies_answered_at_once(
    real: Real, self: ProduceServing, part: ProducePartition, marker: Marker, leader: LeaderReplica
) -> tuple[ProduceResult, Offset | None] | None:
    settled = real(self, part, marker, leader)
    return None if settled is None else (settled[0], None)


def _one_is_enough(real: Real, self: Markers, tp: TopicPartition) -> None:
    if len(self._due_ms) > 1:
        real.differs()
    self._due_ms.clear()


MUTANTS += (
    Mutant(
        number="R59",
        name="a marker of equal epoch ends a transaction",
        broken="A late copy of the last transaction's marker ends the next one.",
        source="X11; KAFKA-19446, and KAFKA-14402 before version 2",
        scenario="x11_late_marker",
        tests=(_LATE,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(TransactionLedger, "judge", _ends_what_is_open),),
    ),
    Mutant(
        number="R63",
        name="markers answered before their HW",
        broken="The coordinator counts a marker that is lost with its leader.",
        source="X8, X11",
        scenario="x11_repeated_marker",
        tests=(_SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ProduceServing, "_appended", _answered_at_once),),
    ),
    Mutant(
        number="R64",
        name="complete before all markers",
        broken="A transaction counts as ended as soon as one partition has its marker.",
        source="X8",
        tests=(_SEARCH,),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(Markers, "written", _one_is_enough, pure=False),),
    ),
    Mutant(
        number="R86",
        name="a repeated marker answered before the first is committed",
        broken="A copy of a marker that may still be lost is answered as done.",
        source="X11; KAFKA-19999",
        scenario="x11_repeated_marker",
        tests=(_SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ProduceServing, "_judge_marker", _copies_answered_at_once),),
    ),
)


# R60, 79, 80: epochs that do not tell one transaction from the next.


def _same_epoch(real: Real, value: TransactionalId, *given: Any) -> TransactionalId | None:
    after: TransactionalId | None = real(value, *given)
    return None if after is None else replace(after, identity=value.identity)


def _whatever_epoch(
    real: Real, value: TransactionalId | None, request: EndTxn, context: Context, supply: ProducerIdSupply
) -> Decision:
    if value is not None and value.state is TxnState.ONGOING:
        request = replace(request, identity=value.identity)
    decision: Decision = real(value, request, context, supply)
    return decision


def _twice(
    real: Real, name: str, value: TransactionalId, context: Context, supply: ProducerIdSupply
) -> Decision | None:
    later = value.identity._replace(producer_epoch=value.identity.producer_epoch + 1)
    decision: Decision | None = real(name, replace(value, identity=later), context, supply)
    return decision


MUTANTS += (
    Mutant(
        number="R60",
        name="no epoch raised per transaction",
        broken="All transactions of a process have one epoch, so that a late message lands in the next one.",
        source="X6; KIP-890, Jepsen on Bufstream 2024",
        scenario="x06_late_end",
        tests=(_SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(decisions, "prepared", _same_epoch),),
    ),
    Mutant(
        number="79",
        name="a late EndTxn of an old epoch is taken",
        broken="A copy of the request that ended one transaction ends the next.",
        source="X6; KAFKA-17754",
        scenario="x06_late_end",
        tests=(_SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ending, "end_txn", _whatever_epoch),),
    ),
    Mutant(
        number="80",
        name="a time-out raises the epoch twice",
        broken="The producer of a transaction that timed out is fenced, and cannot go on by an abort.",
        source="X7; KAFKA-19367",
        scenario="x09_timed_out_producer",
        tests=(_SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ending, "timed_out", _twice),),
    ),
)


# R61: a batch is appended as soon as the coordinator agrees, whatever came in between.


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
    if not verified:
        answer: tuple[ProduceResult, Offset | None] = real(self, part, call, index, now_ms, grown, out)
        return answer
    real.differs()
    leader = self._state.leaders[part.tp]
    grown.setdefault(part.tp, leader.log.leo)
    base = leader.log.append_as_leader(part.header, part.payload, leader.image.leader_epoch, out)
    return self._appended(part, base, leader.log.leo, call.acks, leader)


MUTANTS += (
    Mutant(
        number="R61",
        name="no second look after verification",
        broken="A batch whose transaction was ended while the coordinator's answer was on its way is appended.",
        source="X10; KAFKA-14402, KAFKA-18401",
        scenario="x10_late_consent",
        tests=(_SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ProduceServing, "_append", _appends_what_is_verified, pure=False),),
    ),
)


# R62, 78: readers of committed records are given too much.


def _high_watermark(real: Real, self: ReplicaLog) -> Offset:
    return self.hw


def _begun_in_range(real: Real, self: TransactionLedger, start: Offset, end: Offset) -> tuple[AbortedTransaction, ...]:
    found: tuple[AbortedTransaction, ...] = real(self, start, end)
    return tuple(transaction for transaction in found if transaction.first_offset >= start)


MUTANTS += (
    Mutant(
        number="R62",
        name="the LSO is the HW",
        broken="A reader of committed records is given what may yet be aborted.",
        source="X12; Jepsen on Redpanda 21.10",
        scenario="table_transaction",
        tests=(_SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ReplicaLog, "lso", _high_watermark),),
    ),
    Mutant(
        number="78",
        name="the list of aborted transactions begins at the fetch offset",
        broken="The rest of an aborted transaction is given to a reader that begins within it.",
        source="X15",
        tests=("tests/core/test_producer_snapshot.py",),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(TransactionLedger, "aborted_between", _begun_in_range),),
    ),
)


# 87 to 90: identities raised too often, not at all or past their end, and errors that end a healthy process.

_FENCED = Refusal(ErrorCode.PRODUCER_FENCED, "another process has the transactional id", Outcome.NOT_APPENDED)


def _raised_for_the_abort_too(
    real: Real, value: TransactionalId, request: InitProducerId, context: Context, supply: ProducerIdSupply
) -> Decision:
    later = value.identity._replace(producer_epoch=value.identity.producer_epoch + 1)
    decision: Decision = real(replace(value, identity=later), request, context, supply)
    return decision


def _past_the_end(
    real: Real,
    value: TransactionalId,
    state: TxnState,
    previous: ProducerIdentity | None,
    supply: ProducerIdSupply,
    unix_ms: int,
) -> TransactionalId | None:
    after: TransactionalId | None = real(value, state, previous, supply, unix_ms)
    return None if after is None else replace(after, next_producer_id=None)


def _not_without_records(
    real: Real, value: TransactionalId, request: EndTxn, context: Context, supply: ProducerIdSupply
) -> Decision:
    message = f"{request.transactional_id!r} has no transaction"
    return Decision(answer=Refusal(ErrorCode.INVALID_TXN_STATE, message), scope=request.transactional_id)


def _fenced_for_good(
    real: Real,
    self: ProduceServing,
    part: ProducePartition,
    check: SequenceCheck,
    acks: Acks,
    leader: LeaderReplica,
) -> tuple[ProduceResult, Offset | None]:
    if check.verdict is SequenceVerdict.FENCED:
        return self._refused(part, _FENCED), None
    answer: tuple[ProduceResult, Offset | None] = real(self, part, check, acks, leader)
    return answer


MUTANTS += (
    Mutant(
        number="87",
        name="fencing raises the epoch twice",
        broken="The abort for a new process raises the epoch a second time, past that of any producer or marker.",
        source="X4; KAFKA-19367",
        scenario="x04_aborted_once",
        layers=(Layer.SCENARIOS,),
        swaps=(Swap(decisions, "_fenced", _raised_for_the_abort_too),),
    ),
    Mutant(
        number="88",
        name="epochs go past their end",
        broken="A producer at the last epoch is given the next one, which does not fit into 16 bits.",
        source="X5; KAFKA-18660",
        scenario="x05_last_epoch",
        layers=(Layer.SCENARIOS,),
        swaps=(Swap(decisions, "prepared", _past_the_end),),
    ),
    Mutant(
        number="89",
        name="a transaction without records is refused",
        broken="A process that commits and has written nothing is called wrong.",
        source="X6; KAFKA-18401",
        scenario="x06_empty_transaction",
        layers=(Layer.SCENARIOS,),
        swaps=(Swap(ending, "_ended_without_records", _not_without_records),),
    ),
    Mutant(
        number="90",
        name="a producer of an old epoch is fenced",
        broken="A producer whose transaction timed out is told by a partition that another process has its id.",
        source="X9; KAFKA-19690",
        scenario="x09_timed_out_producer",
        layers=(Layer.SCENARIOS,),
        swaps=(Swap(ProduceServing, "_out_of_sequence", _fenced_for_good),),
    ),
)
