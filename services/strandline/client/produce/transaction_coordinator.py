"""What a transactional producer asks of the coordinator of its id: an identity, and the end of a transaction (X4, X6).

Invariant: a question is asked again with the very same producer id and epoch, so that a coordinator that has done what
was asked answers as it did then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.client.cluster.metadata import Cluster
from strandline.client.groups.coordinator import Coordinator, CoordinatorKind, Verdict
from strandline.client.produce.delivery import ProducerIdentity
from strandline.core.coordinator.internal_topics import TRANSACTION_STATE
from strandline.core.types import NodeId
from strandline.rpc.convert.errors import read_error
from strandline.v1 import group_service_pb2
from strandline.v1 import transaction_service_pb2 as pb
from strandline.v1.transaction_service_pb2_grpc import TransactionServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.transaction_service_pb2_grpc import TransactionServiceAsyncStub

_TRANSACTIONS: CoordinatorKind[TransactionServiceAsyncStub] = CoordinatorKind(
    "transactional id",
    TRANSACTION_STATE,
    group_service_pb2.COORDINATOR_KEY_TYPE_TRANSACTION,
    TransactionServiceStub,
)


class TransactionCoordinator(Coordinator["TransactionServiceAsyncStub"]):
    """The coordinator of one transactional id."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, transaction_timeout_ms: int | None = None) -> None:
        """``transaction_timeout_ms``: after which it aborts a transaction that is still open; None: its default."""
        super().__init__(cluster, _TRANSACTIONS, transactional_id)
        self.transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms

    async def init(self, known: ProducerIdentity | None, *, deadline_ms: int) -> ProducerIdentity:
        """An identity; the producer that had the transactional id before is fenced, and its transaction aborted.

        ``known`` is the one that this producer has, and that only it may replace.

        Raises:
            Refused: as `Coordinator.ask`; PRODUCER_FENCED, a newer producer has the id.
        """
        request = pb.TransactionServiceInitProducerIdRequest(
            cluster_id=self._cluster.cluster_id,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=None if known is None else known.producer_id,
            producer_epoch=None if known is None else known.producer_epoch,
        )
        answered = await self.ask(lambda to: to.InitProducerId, request, _judge, deadline_ms=deadline_ms)
        return ProducerIdentity(answered.answer.producer_id, answered.answer.producer_epoch)

    async def end(self, identity: ProducerIdentity, *, committed: bool, deadline_ms: int) -> ProducerIdentity:
        """Decide the transaction; the identity for the next one.

        Raises:
            Refused: as `Coordinator.ask`; INVALID_TXN_STATE, it was decided the other way.
        """
        request = pb.EndTxnRequest(
            cluster_id=self._cluster.cluster_id,
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=committed,
        )
        answered = await self.ask(lambda to: to.EndTxn, request, _judge, deadline_ms=deadline_ms)
        return ProducerIdentity(answered.answer.producer_id, answered.answer.producer_epoch)

    async def describe(self, *, deadline_ms: int) -> tuple[pb.DescribedTransaction, NodeId]:
        """What it knows of its id, and the node that answered.

        Raises:
            Refused: as `Coordinator.ask`; TRANSACTIONAL_ID_NOT_FOUND, it knows nothing of it.
        """
        request = pb.DescribeTransactionsRequest(
            cluster_id=self._cluster.cluster_id, transactional_ids=[self.transactional_id]
        )
        answered = await self.ask(
            lambda to: to.DescribeTransactions, request, _judge_described, deadline_ms=deadline_ms
        )
        assert self.answered_by is not None
        return answered.answer.transaction_states[0], self.answered_by


def _judge_described(answer: pb.DescribeTransactionsResponse) -> Verdict:
    (row,) = answer.transaction_states
    return Verdict(read_error(row), row.current_coordinator if row.HasField("current_coordinator") else None)


def _judge(answer: pb.TransactionServiceInitProducerIdResponse | pb.EndTxnResponse) -> Verdict:
    hint = answer.current_coordinator if answer.HasField("current_coordinator") else None
    return Verdict(read_error(answer), hint)
