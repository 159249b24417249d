"""One step of a transactional id as a decision: the record, and what follows from it once it is written and committed.

Invariant: markers of a decision are sent when its record is committed and not before: a coordinator that is deposed
with an uncommitted decision has not sent it to any client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.core.coordinator.machine import Context, Decision, Record, TopicDirectory
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.producer_ids import MAX_PRODUCER_EPOCH, ProducerIdSupply
from strandline.core.transactions import records
from strandline.core.transactions.messages import (
    AddPartitions,
    InitProducerId,
    PartitionsAdded,
    ProducerIdentity,
    ProducerIdGiven,
)
from strandline.core.transactions.reporting import Cause, TransactionChange
from strandline.core.types import TopicPartition

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
    """The decision to make ``change``, with its answer."""
    transactional_id, after = change.transactional_id, change.after
    is_decided = after is not None and after.state in records.PREPARED
    # Markers only once the record is committed: the next coordinator knows nothing of a decision that is lost with this
    # one, and may decide otherwise (X8).
    return Decision(
        batches=((Record(records.TransactionalIdKey(transactional_id), after),),),
        answer=answer,
        scope=transactional_id,
        taken=StepTaken(change, used_producer_id),
        committed=MarkersDue(transactional_id, after.identity) if is_decided and after is not None else None,
    )


def refused(transactional_id: str, code: ErrorCode, message: str) -> Decision:
    """A decision to refuse, in the order of the other answers of its id."""
    return Decision(answer=Refusal(code, message), scope=transactional_id)


def unavailable(transactional_id: str) -> Decision:
    """The refusal when no producer id is available."""
    return Decision(answer=NO_PRODUCER_ID, scope=transactional_id)


def raised(identity: ProducerIdentity, supply: ProducerIdSupply) -> tuple[ProducerIdentity, int | None] | None:
    """The identity after ``identity`` while no transaction is open, and the new producer id if it uses one (X5). None
    if it needs one and none is available."""
    if identity.producer_epoch < MAX_PRODUCER_EPOCH:
        return identity._replace(producer_epoch=identity.producer_epoch + 1), None
    producer_id = supply.next_id()
    return None if producer_id is None else (ProducerIdentity(producer_id, 0), producer_id)


def prepared(
    value: records.TransactionalId,
    state: records.TxnState,
    previous: ProducerIdentity | None,
    supply: ProducerIdSupply,
    unix_ms: int,
) -> records.TransactionalId | None:
    """An open transaction as decided, its epoch raised by one (X6); None if a producer id is needed and there is none.
    ``state`` is one of `PREPARED`; ``previous``: whose copy of a request may be answered again."""
    identity, next_id = value.identity, None
    # Markers of the last epoch carry the one above it, which no producer gets: the producer has a new id then (X5).
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


def completed(value: records.TransactionalId, unix_ms: int) -> records.TransactionalId:
    """A decided transaction once every partition has its marker."""
    state = records.TxnState.COMPLETE_COMMIT if value.commits else records.TxnState.COMPLETE_ABORT
    return replace(
        value,
        identity=value.next_identity,
        next_producer_id=None,
        state=state,
        partitions=(),
        start_ms=None,
        update_ms=unix_ms,
    )


# ---- identities
# Decides which identity a transactional producer gets, and whom that fences (X4, X5).


def init_producer_id(
    value: records.TransactionalId | None,
    request: InitProducerId,
    context: Context,
    supply: ProducerIdSupply,
    settings: records.TransactionSettings,
) -> Decision:
    """Decide a request for an identity; ``value`` is None for an unknown id."""
    transactional_id = request.transactional_id
    timeout_ms = settings.timeout_ms if request.timeout_ms is None else request.timeout_ms
    if not 0 < timeout_ms <= settings.max_timeout_ms:
        message = f"transaction_timeout_ms {timeout_ms} is not within 1 and {settings.max_timeout_ms}"
        return refused(transactional_id, ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
    if value is None:
        return _new(request, timeout_ms, context, supply)
    given = request.given
    if given is not None and given not in (value.identity, value.previous):
        message = f"{_text(given)} is not the identity of {transactional_id!r} any more; a newer process has it"
        return refused(transactional_id, ErrorCode.PRODUCER_FENCED, message)
    if value.state is records.TxnState.ONGOING:
        return _fenced(value, request, context, supply)
    if value.state in records.PREPARED:
        return _busy(transactional_id)
    # The answer to this request was lost: one more epoch would fence the sender itself (X4).
    if given is not None and given == value.previous:
        return Decision(answer=ProducerIdGiven(identity=value.identity), scope=transactional_id)
    return _next(value, request, timeout_ms, context, supply)


def _new(request: InitProducerId, timeout_ms: int, context: Context, supply: ProducerIdSupply) -> Decision:
    producer_id = supply.next_id()
    if producer_id is None:
        return unavailable(request.transactional_id)
    identity = ProducerIdentity(producer_id, 0)
    after = records.TransactionalId(identity=identity, timeout_ms=timeout_ms, update_ms=context.unix_ms)
    change = TransactionChange(request.transactional_id, None, after, Cause.INIT)
    return step(change, ProducerIdGiven(identity=identity), used_producer_id=producer_id)


def _next(
    value: records.TransactionalId, request: InitProducerId, timeout_ms: int, context: Context, supply: ProducerIdSupply
) -> Decision:
    found = raised(value.identity, supply)
    if found is None:
        return unavailable(request.transactional_id)
    identity, used_id = found
    # A request without an identity forgets the previous one: from then on its holder is fenced.
    previous = value.identity if request.given is not None else None
    after = replace(
        value,
        identity=identity,
        previous=previous,
        timeout_ms=timeout_ms,
        state=records.TxnState.EMPTY,
        update_ms=context.unix_ms,
    )
    change = TransactionChange(request.transactional_id, value, after, Cause.INIT)
    return step(change, ProducerIdGiven(identity=identity), used_producer_id=used_id)


def _fenced(
    value: records.TransactionalId, request: InitProducerId, context: Context, supply: ProducerIdSupply
) -> Decision:
    transactional_id = request.transactional_id
    # No process has this epoch, so what is under way in the old one is refused. It rises once: a copy of the request
    # finds the transaction decided and asks again (X4).
    after = prepared(value, records.TxnState.PREPARE_ABORT, request.given, supply, context.unix_ms)
    if after is None:
        return unavailable(transactional_id)
    change = TransactionChange(transactional_id, value, after, Cause.FENCED)
    return step(change, _busy(transactional_id).answer, used_producer_id=after.next_producer_id)


def _busy(transactional_id: str) -> Decision:
    message = f"the transaction of {transactional_id!r} is being ended; ask again"
    return refused(transactional_id, ErrorCode.CONCURRENT_TRANSACTIONS, message)


def _text(identity: ProducerIdentity) -> str:
    return f"producer id {identity.producer_id} at epoch {identity.producer_epoch}"


# ---- partitions
# Decides whether a partition takes part in an open transaction, or comes to (X9).

_ADDED = PartitionsAdded()


def add_partitions(value: records.TransactionalId | None, request: AddPartitions, context: Context) -> Decision:
    """Decide a leader's request; ``value`` is None for an unknown id."""
    transactional_id = request.transactional_id
    refusal = refusal_of_identity(value, transactional_id, request.identity)
    if refusal is not None:
        # The markers of the transaction before are some ms away; a leader that is refused asks again later than that.
        is_early = refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS
        return Decision(answer=refusal, scope=transactional_id, postponed=is_early)
    assert value is not None, "an id that is not known has no identity"
    new = tuple(tp for tp in request.partitions if tp not in value.partitions)
    if value.state is records.TxnState.ONGOING and not new:
        return Decision(answer=_ADDED, scope=transactional_id)
    if request.verify_only:
        message = f"the partitions {_names(request.partitions)} are not in the transaction of {transactional_id!r}"
        return refused(transactional_id, ErrorCode.TRANSACTION_ABORTABLE, message)
    # A topic that this node once knew and no longer knows was deleted, so it must know every topic that is added (X8).
    unknown = next((found for tp in new if (found := _unknown(tp, context.topics))), None)
    if unknown is not None:
        return Decision(answer=unknown, scope=transactional_id)
    return _added(value, request, new, context)


def _added(
    value: records.TransactionalId, request: AddPartitions, new: tuple[TopicPartition, ...], context: Context
) -> Decision:
    begins = value.state is not records.TxnState.ONGOING
    after = replace(
        value,
        # This identity is in use, so copies of earlier requests may no longer be answered with it.
        previous=None,
        state=records.TxnState.ONGOING,
        partitions=tuple(sorted({*value.partitions, *new})),
        start_ms=context.unix_ms if begins else value.start_ms,
        update_ms=context.unix_ms,
    )
    cause = Cause.BEGUN if begins else Cause.ADDED
    return step(TransactionChange(request.transactional_id, value, after, cause), _ADDED)


def refusal_of_identity(
    value: records.TransactionalId | None, transactional_id: str, identity: ProducerIdentity
) -> Refusal | None:
    """Why a producer may not act on a transaction now; None if it owns it and it is not being ended."""
    if value is None:
        message = f"no producer of {transactional_id!r} is known; initialize it"
        return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
    if value.state in records.PREPARED and identity == value.next_identity:
        message = f"the transaction before of {transactional_id!r} is being ended; ask again"
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, message)
    known = value.identity
    if identity.producer_id != known.producer_id:
        message = f"{transactional_id!r} has producer id {known.producer_id}, not {identity.producer_id}"
        return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
    if identity.producer_epoch != known.producer_epoch or value.state in records.PREPARED:
        message = f"epoch {identity.producer_epoch} of {transactional_id!r} is over: it is at {known.producer_epoch}"
        return Refusal(ErrorCode.PRODUCER_FENCED, message)
    return None


def _unknown(tp: TopicPartition, topics: TopicDirectory) -> Refusal | None:
    topic = topics.by_id(tp.topic_id)
    if topic is None:
        message = f"this coordinator knows no topic with id {tp.topic_id}; refresh metadata"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, message)
    if not 0 <= tp.partition < topic.partition_count:
        message = f"topic {topic.name!r} has {topic.partition_count} partitions and no partition {tp.partition}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return None


def _names(partitions: tuple[TopicPartition, ...]) -> str:
    return ", ".join(f"{tp.topic_id}-{tp.partition}" for tp in partitions)
