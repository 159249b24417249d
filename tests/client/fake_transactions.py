"""The coordinator of transactional ids of a fake cluster: identities and ends in memory, and what a test asks for."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.core.errors import ErrorCode
from strandline.v1 import transaction_service_pb2 as pb, transaction_service_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from tests.client.fake_cluster import FakeCluster


class End(NamedTuple):
    """A transaction that was ended."""

    producer_epoch: int
    committed: bool


@dataclass
class FakeId:
    """One transactional id, with what it was asked last."""

    producer_id: int
    epoch: int = 0
    last: End | None = None
    staged: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    """Group to offsets, until the end."""


class FakeTransactions:
    """Any node coordinates all ids; nothing is added, and markers are not written."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.ids: dict[str, FakeId] = {}
        self.ends: list[End] = []
        """Every transaction that was ended, in order."""
        self.asked_to_end = 0
        self.init_refusals: deque[ErrorCode] = deque()
        self.end_refusals: deque[ErrorCode] = deque()
        self.loses_ends = 0
        """So many ends are decided and not answered."""

    def add_to(self, server: Any) -> None:
        pb_grpc.add_TransactionServiceServicer_to_server(_FakeCoordinator(self), server)  # type: ignore[no-untyped-call]

    def begin_elsewhere(self, transactional_id: str) -> None:
        """Another process starts with this id."""
        self.ids[transactional_id].epoch += 1

    def time_out(self, transactional_id: str) -> None:
        """The coordinator aborts what is open."""
        self._end(self.ids[transactional_id], committed=False)

    def stage(self, request: Any) -> ErrorCode | None:
        known = self.ids[request.transactional_id]
        if (request.producer_id, request.producer_epoch) != (known.producer_id, known.epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        offsets = {(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}
        known.staged.setdefault(request.group_id, {}).update(offsets)
        return None

    def _end(self, known: FakeId, *, committed: bool) -> None:
        known.last = End(known.epoch, committed)
        self.ends.append(known.last)
        known.epoch += 1
        if committed:
            for group_id, offsets in known.staged.items():
                self.cluster.groups.committed.setdefault(group_id, {}).update(offsets)
        known.staged = {}

    def end(self, request: Any) -> ErrorCode | FakeId:
        """As X6."""
        known = self.ids[request.transactional_id]
        if request.producer_epoch == known.epoch:
            self._end(known, committed=request.committed)
            return known
        if known.last is None or request.producer_epoch != known.last.producer_epoch or known.epoch > known.last[0] + 1:
            return ErrorCode.PRODUCER_FENCED
        return known if known.last.committed == request.committed else ErrorCode.INVALID_TXN_STATE


class _FakeCoordinator(pb_grpc.TransactionServiceServicer):
    def __init__(self, transactions: FakeTransactions) -> None:
        self.transactions = transactions

    async def InitProducerId(  # noqa: N802
        self, request: Any, context: Any
    ) -> pb.TransactionServiceInitProducerIdResponse:
        of = self.transactions
        if of.init_refusals:
            response = pb.TransactionServiceInitProducerIdResponse()
            _refuse(response, of.init_refusals.popleft())
            return response
        known = of.ids.get(request.transactional_id)
        if known is None:
            known = of.ids[request.transactional_id] = FakeId(9_000 + len(of.ids))
        elif request.HasField("producer_id") and request.producer_epoch != known.epoch:
            if known.last is None or known.last.producer_epoch != request.producer_epoch:
                response = pb.TransactionServiceInitProducerIdResponse()
                _refuse(response, ErrorCode.PRODUCER_FENCED)
                return response
        else:
            known.epoch += 1
        return pb.TransactionServiceInitProducerIdResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    async def EndTxn(self, request: Any, context: Any) -> pb.EndTxnResponse:  # noqa: N802
        of = self.transactions
        of.asked_to_end += 1
        response = pb.EndTxnResponse()
        if of.end_refusals:
            _refuse(response, of.end_refusals.popleft())
            return response
        ended = of.end(request)
        if isinstance(ended, ErrorCode):
            _refuse(response, ended)
            return response
        if of.loses_ends:
            of.loses_ends -= 1
            await asyncio.Event().wait()
        response.producer_id, response.producer_epoch = ended.producer_id, ended.epoch
        return response


def _refuse(response: Any, code: ErrorCode) -> None:
    response.error_code, response.error_message = int(code), code.name
