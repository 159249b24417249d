"""What people are shown of transactional ids."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode
from strandline.core.transactions.decisions import refused
from strandline.core.transactions.messages import (
    DescribeTransaction,
    ListedTransaction,
    ListTransactions,
    TransactionDescribed,
    TransactionsListed,
)
from strandline.core.transactions.records import TransactionalId
from strandline.core.types import TopicPartition


def describe(
    value: TransactionalId | None, request: DescribeTransaction, missing: tuple[TopicPartition, ...] | None
) -> Decision:
    """One transactional id; ``missing``: the partitions without a marker, if it is being ended."""
    transactional_id = request.transactional_id
    if value is None:
        message = f"no transactional id {transactional_id!r} is known here"
        return refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message)
    answer = TransactionDescribed(
        transactional_id=transactional_id,
        state=value.state,
        identity=value.identity,
        timeout_ms=value.timeout_ms,
        start_ms=value.start_ms,
        partitions=value.partitions if missing is None else missing,
    )
    return Decision(answer=answer, scope=transactional_id)


def list_transactions(ids: Mapping[str, TransactionalId], request: ListTransactions, context: Context) -> Decision:
    """The transactional ids of this partition that match the filters, by id."""
    states = {state.lower() for state in request.states}
    found = [
        ListedTransaction(transactional_id, value.identity.producer_id, value.state, value.start_ms)
        for transactional_id, value in ids.items()
        if (not states or value.state.lower() in states)
        and (not request.producer_ids or value.identity.producer_id in request.producer_ids)
        and _is_as_old(value, request.longer_than_ms, context.unix_ms)
    ]
    return Decision(answer=TransactionsListed(transactions=tuple(sorted(found, key=lambda each: each[0]))))


def _is_as_old(value: TransactionalId, longer_than_ms: int | None, unix_ms: int) -> bool:
    if longer_than_ms is None:
        return True
    return value.start_ms is not None and unix_ms - value.start_ms > longer_than_ms
