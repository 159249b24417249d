"""TransactionService on the wire, for the server and for a node that asks another one.

Invariants: past this file a topic is its id (M63); every transaction of a request is answered once, in order, whether
or not its coordinator was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.transactions import messages
from strandline.rpc.convert.errors import Topics, check_cluster, gather, invalid, named, read_error
from strandline.v1 import transaction_service_pb2 as pb

MAX_TRANSACTIONAL_ID = 255
"""Most characters of a transactional id."""
_MOST_EPOCH = (1 << 15) - 1


def check_transactional_id(transactional_id: str) -> Refusal | None:
    """Refuse an id that no producer can have."""
    if 0 < len(transactional_id) <= MAX_TRANSACTIONAL_ID:
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"transactional_id has {len(transactional_id)} characters; give 1 to {MAX_TRANSACTIONAL_ID}",
        field="transactional_id",
    )


def _must_be_id(transactional_id: str) -> str:
    refusal = check_transactional_id(transactional_id)
    if refusal is not None:
        raise Refused.of(refusal)
    return transactional_id


def _identity(producer_id: int, producer_epoch: int) -> messages.ProducerIdentity:
    if producer_id < 0:
        raise invalid(f"producer_id {producer_id} must not be negative")
    if not 0 <= producer_epoch <= _MOST_EPOCH:
        raise invalid(f"producer_epoch {producer_epoch} must be 0 to {_MOST_EPOCH}")
    return messages.ProducerIdentity(producer_id, producer_epoch)


def read_init(message: pb.TransactionServiceInitProducerIdRequest, topics: Topics) -> messages.InitProducerId:
    """A producer's request for its identity.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: an impossible id, or half an identity.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    has_id, has_epoch = message.HasField("producer_id"), message.HasField("producer_epoch")
    if has_id is not has_epoch:
        raise invalid("producer_id and producer_epoch belong together; give both or neither")
    return messages.InitProducerId(
        transactional_id=_must_be_id(message.transactional_id),
        timeout_ms=message.transaction_timeout_ms if message.HasField("transaction_timeout_ms") else None,
        given=_identity(message.producer_id, message.producer_epoch) if has_id else None,
    )


def read_end(message: pb.EndTxnRequest, topics: Topics) -> messages.EndTxn:
    """A request to commit or abort a transaction.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: an impossible id or identity.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    return messages.EndTxn(
        transactional_id=_must_be_id(message.transactional_id),
        identity=_identity(message.producer_id, message.producer_epoch),
        committed=message.committed,
    )


class Adding(NamedTuple):
    """One transaction of an AddPartitionsToTxn, or why its coordinator is not asked."""

    transactional_id: str
    request: messages.AddPartitions | Refusal


def read_added(message: pb.AddPartitionsToTxnRequest, topics: Topics) -> tuple[Adding, ...]:
    """The questions of another node's leaders.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: no cluster, no transaction, or one named twice. An error in
            one transaction is refused in its own answer, because the others belong to other producers.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics, required=True)
    names = [transaction.transactional_id for transaction in message.transactions]
    if not names or len(set(names)) < len(names):
        raise invalid(f"transactions names {names}; name at least one transactional id, and each once")
    return tuple(
        Adding(transaction.transactional_id, _read_adding(transaction, topics)) for transaction in message.transactions
    )


def _read_adding(message: pb.AddPartitionsToTxnTransaction, topics: Topics) -> messages.AddPartitions | Refusal:
    try:
        return _adding(message, topics)
    except Refused as error:
        return error.refusal


def _adding(message: pb.AddPartitionsToTxnTransaction, topics: Topics) -> messages.AddPartitions | Refusal:
    transactional_id = _must_be_id(message.transactional_id)
    asked = gather(
        [(topic.topic, topic.topic_id, topic.partitions) for topic in message.topics], topics, int, lambda tp, _: tp
    )
    if asked.unresolved:
        return asked.unresolved[0].refusal
    if not asked.parts:
        raise invalid(f"the transaction of {transactional_id!r} names no partition; give at least one")
    return messages.AddPartitions(
        transactional_id=transactional_id,
        identity=_identity(message.producer_id, message.producer_epoch),
        partitions=asked.parts,
        verify_only=message.verify_only,
    )


def add_partitions_request(
    questions: Iterable[messages.AddPartitions], topics: Topics, cluster_id: str
) -> pb.AddPartitionsToTxnRequest:
    """The questions of this node's leaders, with each transactional id once."""
    request = pb.AddPartitionsToTxnRequest(cluster_id=cluster_id)
    for question in questions:
        request.transactions.add(
            transactional_id=question.transactional_id,
            producer_id=question.identity.producer_id,
            producer_epoch=question.identity.producer_epoch,
            verify_only=question.verify_only,
            topics=named(question.partitions, topics),
        )
    return request


def read_results(
    response: pb.AddPartitionsToTxnResponse, questions: Sequence[messages.AddPartitions]
) -> tuple[Refusal | None, ...]:
    """The answer to each question, in order; UNKNOWN_SERVER_ERROR for one that the response leaves out."""
    rows = {row.transactional_id: read_error(row) for row in response.results_by_transaction}
    lost = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's answer leaves this transaction out")
    return tuple(rows.get(question.transactional_id, lost) for question in questions)


def read_list(message: pb.ListTransactionsRequest, topics: Topics) -> messages.ListTransactions:
    """The filters of a list of transactional ids.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: a negative duration.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    longer_than_ms = message.duration_filter if message.HasField("duration_filter") else None
    if longer_than_ms is not None and longer_than_ms < 0:
        raise invalid(f"duration_filter {longer_than_ms} must not be negative")
    return messages.ListTransactions(
        states=tuple(message.state_filters),
        producer_ids=tuple(message.producer_id_filters),
        longer_than_ms=longer_than_ms,
    )


def add_listed(response: pb.ListTransactionsResponse, listed: Iterable[messages.ListedTransaction]) -> None:
    """Add transactional ids to a list."""
    for each in listed:
        response.transaction_states.add(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            transaction_state=each.state,
            transaction_start_time_ms=each.start_ms,
        )


def write_described(row: pb.DescribedTransaction, found: messages.TransactionDescribed, topics: Topics) -> None:
    """Describe one transactional id."""
    row.transaction_state = found.state
    row.transaction_timeout_ms = found.timeout_ms
    row.producer_id, row.producer_epoch = found.identity
    if found.start_ms is not None:
        row.transaction_start_time_ms = found.start_ms
    row.topics.extend(named(sorted(found.partitions, key=lambda tp: (topics.name_of(tp.topic_id), tp)), topics))
