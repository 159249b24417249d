"""Decides whether a partition takes part in an open transaction, or comes to (X9)."""

from __future__ import annotations

from dataclasses import replace

from strandline.core.coordinator.machine import Context, Decision, TopicDirectory
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.transaction_ids.happenings import Cause, TransactionChange
from strandline.core.transaction_ids.records import PREPARED, TransactionalId, TxnState
from strandline.core.transaction_ids.steps import refused, step
from strandline.core.transaction_messages import AddPartitions, PartitionsAdded, ProducerIdentity
from strandline.core.types import TopicPartition

_ADDED = PartitionsAdded()


def add_partitions(value: TransactionalId | None, request: AddPartitions, context: Context) -> Decision:
    """What a leader's question leads to; ``value`` is None for an id that is not known."""
    transactional_id = request.transactional_id
    refusal = refusal_of_identity(value, transactional_id, request.identity)
    if refusal is not None:
        # The markers of the transaction before are some ms away; a leader that is refused asks again later than that.
        is_early = refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS
        return Decision(answer=refusal, scope=transactional_id, postponed=is_early)
    assert value is not None, "an id that is not known has no identity"
    new = tuple(tp for tp in request.partitions if tp not in value.partitions)
    if value.state is TxnState.ONGOING and not new:
        return Decision(answer=_ADDED, scope=transactional_id)
    if request.verify_only:
        message = f"the partitions {_names(request.partitions)} are not in the transaction of {transactional_id!r}"
        return refused(transactional_id, ErrorCode.TRANSACTION_ABORTABLE, message)
    # What this node knew once and knows no longer was deleted, so nothing may come in that it does not know yet (X8).
    unknown = next((found for tp in new if (found := _unknown(tp, context.topics))), None)
    if unknown is not None:
        return Decision(answer=unknown, scope=transactional_id)
    return _added(value, request, new, context)


def _added(
    value: TransactionalId, request: AddPartitions, new: tuple[TopicPartition, ...], context: Context
) -> Decision:
    begins = value.state is not TxnState.ONGOING
    after = replace(
        value,
        # This identity is in use, so no copy of a request from before may be answered with it any more.
        previous=None,
        state=TxnState.ONGOING,
        partitions=tuple(sorted({*value.partitions, *new})),
        start_ms=context.unix_ms if begins else value.start_ms,
        update_ms=context.unix_ms,
    )
    cause = Cause.BEGUN if begins else Cause.ADDED
    return step(TransactionChange(request.transactional_id, value, after, cause), _ADDED)


def refusal_of_identity(
    value: TransactionalId | None, transactional_id: str, identity: ProducerIdentity
) -> Refusal | None:
    """Why a producer may not act on a transaction now; None: it is the one, and its transaction is not being ended."""
    if value is None:
        message = f"no producer of {transactional_id!r} is known; initialize it"
        return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
    if value.state in PREPARED and identity == value.next_identity:
        message = f"the transaction before of {transactional_id!r} is being ended; ask again"
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, message)
    known = value.identity
    if identity.producer_id != known.producer_id:
        message = f"{transactional_id!r} has producer id {known.producer_id}, not {identity.producer_id}"
        return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
    if identity.producer_epoch != known.producer_epoch or value.state in PREPARED:
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
