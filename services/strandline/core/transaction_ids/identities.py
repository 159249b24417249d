"""Decides which identity a transactional producer gets, and whom that fences (X4, X5)."""

from __future__ import annotations

from dataclasses import replace

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode
from strandline.core.producer_id_blocks import ProducerIdSupply
from strandline.core.transaction_ids.happenings import Cause, TransactionChange
from strandline.core.transaction_ids.records import PREPARED, TransactionalId, TxnState
from strandline.core.transaction_ids.settings import TransactionSettings
from strandline.core.transaction_ids.steps import prepared, raised, refused, step, unavailable
from strandline.core.transaction_messages import InitProducerId, ProducerIdentity, ProducerIdGiven


def init_producer_id(
    value: TransactionalId | None,
    request: InitProducerId,
    context: Context,
    supply: ProducerIdSupply,
    settings: TransactionSettings,
) -> Decision:
    """What a request for an identity leads to; ``value`` is None for an id that is not known."""
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
    if value.state is TxnState.ONGOING:
        return _fenced(value, request, context, supply)
    if value.state in PREPARED:
        return _busy(transactional_id)
    if given is not None and given == value.previous:
        return Decision(answer=ProducerIdGiven(identity=value.identity), scope=transactional_id)
    return _next(value, request, timeout_ms, context, supply)


def _new(request: InitProducerId, timeout_ms: int, context: Context, supply: ProducerIdSupply) -> Decision:
    producer_id = supply.next_id()
    if producer_id is None:
        return unavailable(request.transactional_id)
    identity = ProducerIdentity(producer_id, 0)
    after = TransactionalId(identity=identity, timeout_ms=timeout_ms, update_ms=context.unix_ms)
    change = TransactionChange(request.transactional_id, None, after, Cause.INIT)
    return step(change, ProducerIdGiven(identity=identity), used_producer_id=producer_id)


def _next(
    value: TransactionalId, request: InitProducerId, timeout_ms: int, context: Context, supply: ProducerIdSupply
) -> Decision:
    found = raised(value.identity, supply)
    if found is None:
        return unavailable(request.transactional_id)
    identity, used_id = found
    # Who names no identity forgets the previous one: from then on its holder is fenced.
    previous = value.identity if request.given is not None else None
    after = replace(
        value,
        identity=identity,
        previous=previous,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        update_ms=context.unix_ms,
    )
    change = TransactionChange(request.transactional_id, value, after, Cause.INIT)
    return step(change, ProducerIdGiven(identity=identity), used_producer_id=used_id)


def _fenced(value: TransactionalId, request: InitProducerId, context: Context, supply: ProducerIdSupply) -> Decision:
    """A transaction is open: it is aborted by an epoch that no process has, and the sender asks again."""
    transactional_id = request.transactional_id
    after = prepared(value, TxnState.PREPARE_ABORT, request.given, supply, context.unix_ms)
    if after is None:
        return unavailable(transactional_id)
    change = TransactionChange(transactional_id, value, after, Cause.FENCED)
    return step(change, _busy(transactional_id).answer, used_producer_id=after.next_producer_id)


def _busy(transactional_id: str) -> Decision:
    message = f"the transaction of {transactional_id!r} is being ended; ask again"
    return refused(transactional_id, ErrorCode.CONCURRENT_TRANSACTIONS, message)


def _text(identity: ProducerIdentity) -> str:
    return f"producer id {identity.producer_id} at epoch {identity.producer_epoch}"
