"""The transaction of a block: its records and offsets are committed together, or none of them (X3, X16).

Invariant: offsets are sent to the coordinator of their group once, at the end of the transaction; after an abort, or if
the transaction could not begin, a consumer in it is back at its group's committed offsets.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple, Self

from strandline.client.cluster.metadata import Cluster
from strandline.client.consumer import Consumer
from strandline.client.errors import ProducerFenced
from strandline.client.groups.committed_offsets import AsMember, CommittedOffsets, Offsets, read_offsets
from strandline.client.groups.committing import Positions, Superseded, refusals
from strandline.client.groups.group_commits import GroupCommits
from strandline.client.groups.membership import GroupMetadata
from strandline.client.log import log
from strandline.client.produce.transactional_id import TransactionalId, TransactionPhase
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused


class _Staged(NamedTuple):
    member: AsMember | None
    offsets: Positions


class Transaction:
    """One transaction of a producer; `Producer.transaction` makes it, and ``async with`` begins and ends it."""

    def __init__(
        self, cluster: Cluster, of: TransactionalId, *, timeout_ms: int, consumer: Consumer[Any, Any] | None
    ) -> None:
        self._cluster = cluster
        self._of = of
        self._timeout_ms = timeout_ms
        self._consumer = consumer
        self._staged: dict[str, _Staged] = {}
        # Why the staged offsets must not be committed.
        self._refusal: Refusal | None = None
        # The offsets after the consumer's records, as they are being committed.
        self._given: Positions = {}
        self._group: GroupCommits | None = None
        self._is_begun = self._is_over = False

    async def __aenter__(self) -> Self:
        if self._is_begun:
            raise ValueError("a transaction is used once; producer.transaction() makes the next")
        try:
            await self._of.begin()
        except BaseException:
            # Otherwise records polled for this transaction would be committed by the next one, without their outputs.
            # While another transaction is open, they belong to that one.
            if self._consumer is not None and self._of.phase is TransactionPhase.NONE:
                self._consumer._rewind()
            raise
        self._is_begun = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over or self._of.phase is TransactionPhase.UNKNOWN:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.abort()
        except ProducerFenced as fenced:
            # The caller gets the error of the block; this one is raised by the next transaction.
            log.warning("%s", fenced)

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """Commit these offsets for a group when the transaction commits; a plain name means a group without members.

        They are sent at its end, with those of other calls; a later offset for a partition replaces an earlier one.

        Raises:
            Refused: INVALID_TXN_STATE, the transaction is not open.
        """
        self._check_open()
        if isinstance(group, str):
            self._stage(group, None, read_offsets(offsets), ())
        else:
            member = AsMember(group.member_id, group.member_epoch, group.instance_id)
            self._stage(group.group_id, member, read_offsets(offsets), group.superseded)

    def _stage(self, group_id: str, member: AsMember | None, offsets: Positions, superseded: Superseded) -> None:
        before = self._staged.get(group_id)
        # All are sent with the newest epoch, so a partition that was lost after an earlier call fails all of them.
        staged = _Staged(member, (before.offsets if before else {}) | offsets)
        self._staged[group_id] = staged
        self._refusal = self._refusal or next(iter(refusals(staged.offsets, superseded).values()), None)

    async def commit(self) -> None:
        """Commit now; the end of the block does it too. After `OutcomeUnknown` it asks again.

        Raises:
            TransactionAborted: it could not be committed, so none of it counts; run the block again.
            ProducerFenced: another producer has the transactional id; end the process.
            OutcomeUnknown: the coordinator did not answer within ``delivery_timeout_ms``.
            Refused: INVALID_TXN_STATE, the transaction has ended.
        """
        if self._is_over or self._of.phase is not TransactionPhase.UNKNOWN:
            self._check_open()
        try:
            await self._of.commit(self._send_staged)
        except BaseException:
            if self._of.phase is TransactionPhase.NONE:
                self._aborted()
            raise
        self._is_over = True
        if self._group is not None:
            self._group.committed_in_transaction(self._given)

    async def abort(self) -> None:
        """Abort now; an exception that leaves the block does it too. After the end it does nothing.

        Raises:
            ProducerFenced: another producer has the transactional id; the transaction is aborted all the same.
        """
        if self._is_over or self._of.phase is TransactionPhase.UNKNOWN:
            return
        try:
            await self._of.abort()
        finally:
            self._aborted()

    def _aborted(self) -> None:
        self._is_over = True
        if self._consumer is not None:
            self._consumer._rewind()

    def _check_open(self) -> None:
        if self._is_over or not self._is_begun or self._of.phase is not TransactionPhase.OPEN:
            message = "the transaction is not open; use it inside of its `async with` block"
            raise Refused(ErrorCode.INVALID_TXN_STATE, message, Outcome.NOT_APPENDED)

    async def _send_staged(self) -> bool:
        """Send the staged offsets of groups; returns whether there are any.

        Raises:
            Refused: STALE_MEMBER_EPOCH, some of it is not this member's; or a coordinator refused.
        """
        if self._consumer is not None:
            self._stage_given(self._consumer)
        if self._refusal is not None:
            raise Refused.of(self._refusal)
        for group_id, staged in self._staged.items():
            await CommittedOffsets(self._cluster, group_id).stage(
                staged.offsets,
                member=staged.member,
                transactional_id=self._of.name,
                identity=self._of.identity,
                deadline_ms=self._timeout_ms,
            )
        return bool(self._staged)

    def _stage_given(self, consumer: Consumer[Any, Any]) -> None:
        """Stage the offsets after the consumer's records that are not committed yet.

        Raises:
            Refused: STALE_MEMBER_EPOCH, some partitions are no longer its own, so another member works on them, too.
        """
        self._group = group = consumer._grouped()
        given = group.given_uncommitted()
        if given.lost:
            first = given.lost[0]
            message = f"{first.topic}-{first.partition} was taken from this consumer while it was worked on"
            raise Refused.of(Refusal(ErrorCode.STALE_MEMBER_EPOCH, message, Outcome.NOT_APPENDED))
        self._given = given.positions
        if self._given:
            self._stage(group.group_id, consumer._member(), self._given, group.superseded())
