"""One step of a transactional id as a decision: the record, and what follows from it once it is written and committed.

Invariant: markers of a decision are asked for when its record is committed, and no sooner: a coordinator that is
deposed with an uncommitted decision has informed nobody of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.core.coordinator.machine import Decision
from strandline.core.coordinator.records import Record
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.producer_id_blocks import ProducerIdSupply
from strandline.core.producer_ids import MAX_PRODUCER_EPOCH
from strandline.core.transaction_ids.happenings import TransactionChange
from strandline.core.transaction_ids.records import PREPARED, TransactionalId, TransactionalIdKey, TxnState
from strandline.core.transaction_messages import ProducerIdentity

NO_PRODUCER_ID = Refusal(
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "this coordinator has no producer id left and no controller gives it more; ask again",
)


@dataclass(frozen=True, slots=True)
class StepTaken:
    """Note of a step: what changed, and which producer id it used up."""

    change: TransactionChange
    used_producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class MarkersDue:
    """Note of a decided transaction: its markers go out when the decision is committed."""

    transactional_id: str
    identity: ProducerIdentity


def step(change: TransactionChange, answer: object | None = None, *, used_producer_id: int | None = None) -> Decision:
    """The decision that makes ``change``, and answers so."""
    transactional_id, after = change.transactional_id, change.after
    is_decided = after is not None and after.state in PREPARED
    return Decision(
        batches=((Record(TransactionalIdKey(transactional_id), after),),),
        answer=answer,
        scope=transactional_id,
        taken=StepTaken(change, used_producer_id),
        committed=MarkersDue(transactional_id, after.identity) if is_decided and after is not None else None,
    )


def refused(transactional_id: str, code: ErrorCode, message: str) -> Decision:
    """A refusal, in the order of the other answers of its id."""
    return Decision(answer=Refusal(code, message), scope=transactional_id)


def unavailable(transactional_id: str) -> Decision:
    """The refusal for want of a producer id."""
    return Decision(answer=NO_PRODUCER_ID, scope=transactional_id)


def raised(identity: ProducerIdentity, supply: ProducerIdSupply) -> tuple[ProducerIdentity, int | None] | None:
    """The identity after ``identity`` while no transaction is open, and the new producer id that it uses up, if it does
    (X5). None: it needs one, and there is none."""
    if identity.producer_epoch < MAX_PRODUCER_EPOCH:
        return identity._replace(producer_epoch=identity.producer_epoch + 1), None
    producer_id = supply.next_id()
    return None if producer_id is None else (ProducerIdentity(producer_id, 0), producer_id)


def prepared(
    value: TransactionalId,
    state: TxnState,
    previous: ProducerIdentity | None,
    supply: ProducerIdSupply,
    unix_ms: int,
) -> TransactionalId | None:
    """An open transaction as decided: its epoch rises by one, and markers carry the new one (X6).

    Args:
        value: the open transaction.
        state: one of `PREPARED`.
        previous: whose copy of a request may be answered again.
        supply: asked for the producer id that follows when the epochs of this one are used up.
        unix_ms: the wall clock.

    Returns:
        None if a producer id is needed and there is none.
    """
    identity, next_id = value.identity, None
    if identity.producer_epoch >= MAX_PRODUCER_EPOCH:
        next_id = supply.next_id()
        if next_id is None:
            return None
    return replace(
        value,
        identity=identity._replace(producer_epoch=identity.producer_epoch + 1),
        previous=previous,
        next_producer_id=next_id,
        state=state,
        update_ms=unix_ms,
    )


def completed(value: TransactionalId, unix_ms: int) -> TransactionalId:
    """A decided transaction as it is when every partition has its marker."""
    state = TxnState.COMPLETE_COMMIT if value.commits else TxnState.COMPLETE_ABORT
    return replace(
        value,
        identity=value.next_identity,
        next_producer_id=None,
        state=state,
        partitions=(),
        start_ms=None,
        update_ms=unix_ms,
    )
