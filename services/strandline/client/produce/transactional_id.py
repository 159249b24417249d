"""Which transaction of a producer is open, under which identity, and how it ends (X6, U11).

Invariants: a transaction is committed only if every record and every offset of it was taken; whatever else happens it
is aborted, or its outcome is said to be unknown. One begins only when the one before has ended, under the identity
that its end brought.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import OutcomeUnknown, ProducerFenced, TransactionAborted
from strandline.client.groups.coordinator import Coordinator, CoordinatorKind, verdict_of
from strandline.client.log import log
from strandline.client.produce.delivery import ProducerIdentity
from strandline.core.coordinator.internal_topics import TRANSACTION_STATE
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import NodeId
from strandline.v1 import group_service_pb2, transaction_service_pb2 as pb
from strandline.v1.transaction_service_pb2_grpc import TransactionServiceStub

if TYPE_CHECKING:
    from strandline.v1.transaction_service_pb2_grpc import TransactionServiceAsyncStub


# ---- transaction_coordinator
# What a transactional producer asks of the coordinator of its id: an identity, and the end of a transaction (X4, X6).
#
# Invariant: a question is asked again with the very same producer id and epoch, so that a coordinator that has done
# what was asked answers as it did then.

_TRANSACTIONS: CoordinatorKind[TransactionServiceAsyncStub] = CoordinatorKind(
    "transactional id", TRANSACTION_STATE, group_service_pb2.COORDINATOR_KEY_TYPE_TRANSACTION, TransactionServiceStub
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
        answered = await self.ask(lambda to: to.InitProducerId, request, verdict_of, deadline_ms=deadline_ms)
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
        answered = await self.ask(lambda to: to.EndTxn, request, verdict_of, deadline_ms=deadline_ms)
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
            lambda to: to.DescribeTransactions,
            request,
            lambda answer: verdict_of(*answer.transaction_states),
            deadline_ms=deadline_ms,
        )
        assert self.answered_by is not None
        return answered.answer.transaction_states[0], self.answered_by


_ANOTHER_HAS_IT = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""What a coordinator answers to one that the transactional id does not belong to any more."""
_ABORTED = Refusal(ErrorCode.TRANSACTION_ABORTABLE, "its transaction is aborted")


class TransactionPhase(Enum):
    """How far the transaction of a producer has come."""

    NONE = auto()
    """There is none: records are refused."""
    OPEN = auto()
    ENDING = auto()
    """What was sent is waited for, and no more is taken."""
    UNKNOWN = auto()
    """It was to be committed, and the coordinator has not answered."""


class Sending(NamedTuple):
    """What a producer does for its transactions."""

    begin: Callable[[ProducerIdentity], None]
    """Take records from now on, and number them from 0 under this identity."""
    stop: Callable[[], None]
    """Take no more records."""
    finish: Callable[[], Awaitable[None]]
    """Send what was taken, and wait until the end of all of it is known."""
    abandon: Callable[[Refusal], None]
    """Give up what was taken and has not ended."""


class TransactionalId:
    """The transactions of one producer."""

    def __init__(
        self, coordinator: TransactionCoordinator, sending: Sending, *, init_ms: int, commit_ms: int, abort_ms: int
    ) -> None:
        """How long the coordinator is asked: ``init_ms`` for an identity, ``commit_ms`` and ``abort_ms`` for an end."""
        self._coordinator = coordinator
        self._sending = sending
        self._init_ms = init_ms
        self._commit_ms = commit_ms
        self._abort_ms = abort_ms
        self._identity: ProducerIdentity | None = None
        # Whether the coordinator is known to have this identity for the next transaction.
        self._is_settled = False
        self._fenced: ProducerFenced | None = None
        self._failure: Refusal | None = None
        self._is_used = False
        self.phase = TransactionPhase.NONE

    @property
    def name(self) -> str:
        """The transactional id."""
        return self._coordinator.transactional_id

    @property
    def identity(self) -> ProducerIdentity:
        """That of the transaction."""
        assert self._identity is not None, "the producer has not started"
        return self._identity

    async def start(self) -> None:
        """Get an identity; a producer that had the id before is fenced.

        Raises:
            Refused: the coordinator refused, or did not answer in time.
        """
        self._identity = await self._coordinator.init(None, deadline_ms=self._init_ms)
        self._is_settled = True

    async def begin(self) -> None:
        """Begin a transaction.

        Raises:
            ProducerFenced: another producer has the id.
            Refused: INVALID_TXN_STATE, one is open; or the coordinator did not answer in time.
        """
        if self._fenced is not None:
            raise self._fenced
        if self.phase is not TransactionPhase.NONE:
            is_unknown = self.phase is TransactionPhase.UNKNOWN
            what = "its commit() has not been answered; await that again" if is_unknown else "end it first"
            message = f"'{self.name}' has a transaction already: {what}"
            raise Refused(ErrorCode.INVALID_TXN_STATE, message, Outcome.NOT_APPENDED)
        if not self._is_settled:
            await self._settle()
        self._failure, self._is_used = None, False
        self._sending.begin(self.identity)
        self.phase = TransactionPhase.OPEN

    async def _settle(self) -> None:
        """The last transaction's end was not answered: the coordinator ends it now, if it has not."""
        self.phase = TransactionPhase.ENDING
        try:
            self._identity = await self._coordinator.init(self._identity, deadline_ms=self._init_ms)
        except Refused as refused:
            self._maybe_fence(refused.refusal)
            raise
        finally:
            self.phase = TransactionPhase.NONE
        self._is_settled = True

    def check(self) -> None:
        """Whether a record may be taken now.

        Raises:
            Refused: INVALID_TXN_STATE, no transaction is open.
            TransactionAborted: the open one cannot be committed any more.
        """
        if self.phase is TransactionPhase.OPEN:
            if self._failure is not None:
                raise TransactionAborted(self.name, self._failure)
            self._is_used = True
            return
        message = (
            f"the producer has the transactional id '{self.name}' and no transaction is open; "
            "send inside of `async with producer.transaction()`"
        )
        raise Refused(ErrorCode.INVALID_TXN_STATE, message, Outcome.NOT_APPENDED)

    def failed(self, refusal: Refusal) -> None:
        """A record was given up, so the transaction cannot be committed; the others need not be sent."""
        if self._failure is None and self.phase in (TransactionPhase.OPEN, TransactionPhase.ENDING):
            self._failure = refusal
            self._sending.stop()
            self._sending.abandon(_ABORTED)

    async def commit(self, stage: Callable[[], Awaitable[bool]]) -> None:
        """Commit the open transaction, or ask again whether the last one is.

        ``stage`` sends the offsets that are part of it; it returns whether there were any.

        Raises:
            TransactionAborted: it could not be committed, or its time was over.
            ProducerFenced: another producer has the id.
            OutcomeUnknown: the coordinator did not answer in time.
        """
        if self.phase is TransactionPhase.OPEN:
            self.phase = TransactionPhase.ENDING
            self._sending.stop()
            try:
                await self._sending.finish()
                if self._failure is None:
                    self._is_used |= await stage()
            except Refused as refused:
                self._failure = refused.refusal
            except BaseException:
                # Cancelled, or the consumer that takes part was closed: nothing else would end it.
                await self.abort()
                raise
            if self._failure is not None:
                await self.abort()
                raise TransactionAborted(self.name, self._failure)
        if self._is_used:
            await self._decide_commit()
        self.phase = TransactionPhase.NONE

    async def _decide_commit(self) -> None:
        # Before the request: cut off in the middle, it may be committed, and `abort` must not follow.
        self.phase = TransactionPhase.UNKNOWN
        try:
            self._identity = await self._coordinator.end(self.identity, committed=True, deadline_ms=self._commit_ms)
        except Refused as refused:
            refusal = refused.refusal
            if self._maybe_fence(refusal):
                self._raise_fenced()
            if refusal.code is ErrorCode.INVALID_TXN_STATE:
                await self._end_aborted()
                raise TransactionAborted(self.name, refusal) from None
            raise OutcomeUnknown(self.name, refusal) from None

    async def abort(self) -> None:
        """Abort the open transaction. If the coordinator does not answer, the next one begins with its word.

        Raises:
            ProducerFenced: another producer has the id.
        """
        if self.phase not in (TransactionPhase.OPEN, TransactionPhase.ENDING):
            return
        self._sending.stop()
        self._sending.abandon(_ABORTED)
        if self._is_used:
            await self._end_aborted()
        self.phase = TransactionPhase.NONE

    async def _end_aborted(self) -> None:
        # If the answer is lost, only the coordinator knows the next identity, so `begin` asks for it first.
        self.phase, self._is_settled = TransactionPhase.NONE, False
        try:
            self._identity = await self._coordinator.end(self.identity, committed=False, deadline_ms=self._abort_ms)
        except Refused as refused:
            if self._maybe_fence(refused.refusal):
                self._raise_fenced()
            log.warning("the abort of a transaction of '%s' was not answered: %s", self.name, refused.refusal)
        else:
            self._is_settled = True

    def _maybe_fence(self, refusal: Refusal) -> bool:
        if refusal.code in _ANOTHER_HAS_IT:
            self._fenced, self.phase = ProducerFenced(self.name, refusal), TransactionPhase.NONE
        return self._fenced is not None

    def _raise_fenced(self) -> NoReturn:
        assert self._fenced is not None
        raise self._fenced from None
