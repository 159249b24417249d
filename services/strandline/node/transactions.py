"""TransactionService: turns its calls into requests to coordinators in the core, and their answers into messages.

Invariant: a handler holds no state and decides nothing about transactions; each transaction of a call gets its own
answer, so that one that must wait does not affect the others.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import grpc

from strandline.core.errors import Refusal, Refused
from strandline.core.permissions import ResourceType
from strandline.core.transactions import messages
from strandline.core.transactions.records import TxnState
from strandline.node.shard_calls import Context, ShardCalls, wait_ms
from strandline.rpc.convert import transactions
from strandline.rpc.convert.errors import check_cluster, invalid, write_error
from strandline.rpc.permitted import refused, seen, sees
from strandline.runtime.host import Host
from strandline.v1 import transaction_service_pb2 as pb, transaction_service_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["TransactionService"].full_name
_STATES = {str(state).lower() for state in TxnState}


class TransactionServicer:
    """TransactionService of one data node."""

    def __init__(self, host: Host, shards: ShardCalls) -> None:
        self._host = host
        self._shards = shards

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        pb_grpc.add_TransactionServiceServicer_to_server(cast(Any, self), server)

    async def InitProducerId(
        self, request: pb.TransactionServiceInitProducerIdRequest, context: Context
    ) -> pb.TransactionServiceInitProducerIdResponse:
        """Gives a producer its identity."""
        asked = transactions.read_init(request, self._host.topics)
        response = pb.TransactionServiceInitProducerIdResponse()
        await self._identify(response, asked, context, messages.ProducerIdGiven)
        return response

    async def EndTxn(self, request: pb.EndTxnRequest, context: Context) -> pb.EndTxnResponse:
        """Commits or aborts a transaction."""
        asked = transactions.read_end(request, self._host.topics)
        response = pb.EndTxnResponse()
        await self._identify(response, asked, context, messages.TxnEnded)
        return response

    async def _identify(self, response: Any, asked: Any, context: Context, kind: type[Any]) -> None:
        """Answer with the identity that the coordinator gives, or with its refusal."""
        try:
            answer = await self._shards.ask(asked.transactional_id, asked, wait_ms(context), kind)
        except Refused as error:
            write_error(response, error.refusal)
            self._shards.point(response, asked.transactional_id, error.refusal)
        else:
            response.producer_id, response.producer_epoch = answer.identity

    async def AddPartitionsToTxn(
        self, request: pb.AddPartitionsToTxnRequest, context: Context
    ) -> pb.AddPartitionsToTxnResponse:
        """Adds partitions to transactions."""
        return await self.add_partitions(request, wait_ms(context))

    async def add_partitions(
        self, request: pb.AddPartitionsToTxnRequest, within_ms: int
    ) -> pb.AddPartitionsToTxnResponse:
        """As AddPartitionsToTxn, but also called by this node's own leaders.

        Raises:
            Refused: the request was refused as a whole.
        """
        asked = transactions.read_added(request, self._host.topics)
        found = await asyncio.gather(*(self._added(each, within_ms) for each in asked))
        response = pb.AddPartitionsToTxnResponse()
        for each, refusal in zip(asked, found, strict=True):
            row = response.results_by_transaction.add(transactional_id=each.transactional_id)
            if refusal is not None:
                write_error(row, refusal)
                self._shards.point(row, each.transactional_id, refusal)
        return response

    async def _added(self, asked: transactions.Adding, within_ms: int) -> Refusal | None:
        if isinstance(asked.request, Refusal):
            return asked.request
        try:
            await self._shards.ask(asked.transactional_id, asked.request, within_ms, messages.PartitionsAdded)
        except Refused as error:
            return error.refusal
        return None

    async def DescribeTransactions(
        self, request: pb.DescribeTransactionsRequest, context: Context
    ) -> pb.DescribeTransactionsResponse:
        """Describes transactional ids."""
        check_cluster(request.cluster_id if request.HasField("cluster_id") else None, self._host.topics)
        names = list(request.transactional_ids)
        if not names or len(set(names)) < len(names):
            raise invalid(f"transactional_ids names {names}; name at least one, and each once")
        found = await asyncio.gather(*(self._described(name, wait_ms(context)) for name in names))
        response = pb.DescribeTransactionsResponse()
        for name, described in zip(names, found, strict=True):
            row = response.transaction_states.add(transactional_id=name)
            if isinstance(described, Refusal):
                write_error(row, described)
                self._shards.point(row, name, described)
            else:
                transactions.write_described(row, described, self._host.topics)
        return response

    async def _described(self, name: str, within_ms: int) -> messages.TransactionDescribed | Refusal:
        if refusal := transactions.check_transactional_id(name):
            return refusal
        if unpermitted := refused(ResourceType.TRANSACTIONAL_ID, name):
            return unpermitted
        try:
            request = messages.DescribeTransaction(transactional_id=name)
            found = await self._shards.ask(name, request, within_ms, messages.TransactionDescribed)
            return replace(found, partitions=tuple(seen(found.partitions, self._host.topics)))
        except Refused as error:
            return error.refusal

    async def ListTransactions(
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> pb.ListTransactionsResponse:
        """Lists the transactional ids that this node coordinates."""
        asked = transactions.read_list(request, self._host.topics)
        response = pb.ListTransactionsResponse()
        response.unknown_state_filters.extend(state for state in asked.states if state.lower() not in _STATES)
        listed: list[messages.ListedTransaction] = []
        for tp in self._shards.here():
            try:
                found = await self._shards.ask_at(tp, asked, wait_ms(context), messages.TransactionsListed)
                listed += (
                    one for one in found.transactions if sees(ResourceType.TRANSACTIONAL_ID, one.transactional_id)
                )
            except Refused as error:
                write_error(response, error.refusal)
        transactions.add_listed(response, sorted(listed, key=lambda each: each.transactional_id))
        return response
