"""87 to 90: identities raised too often, not at all or past their end, and errors that end a healthy process."""

from __future__ import annotations

from dataclasses import replace

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.producer_id_blocks import ProducerIdSupply
from strandline.core.log.producers import SequenceCheck, SequenceVerdict
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.serving.produce import ProduceServing
from strandline.core.transactions import decisions, ending
from strandline.core.transactions.messages import EndTxn, InitProducerId, ProducerIdentity
from strandline.core.transactions.records import TransactionalId, TxnState
from strandline.core.types import Acks, Offset

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


MUTANTS = (
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
