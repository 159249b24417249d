"""TransactionService: turns its calls into requests to coordinators in the core, and their answers into messages; and
how this node asks others about transactions.

Invariant: a handler holds no state and decides nothing about transactions; each transaction of a call gets its own
answer, so that one that must wait does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import grpc

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.permissions import ResourceType
from strandline.core.transactions import messages
from strandline.core.transactions.records import TxnState
from strandline.core.types import NodeId, TopicPartition
from strandline.node.shard_calls import Context, ShardCalls, wait_ms
from strandline.rpc.channels import Channels, Keepalive, call
from strandline.rpc.convert import transactions
from strandline.rpc.convert.errors import check_cluster, invalid, write_error
from strandline.rpc.convert.produce import markers_request, read_marker_results
from strandline.rpc.permitted import refused, seen, sees
from strandline.rpc.tls import Tls
from strandline.runtime.host import Host
from strandline.v1 import (
    leader_service_pb2 as leader_pb,
    leader_service_pb2_grpc as leader_pb_grpc,
    transaction_service_pb2 as pb,
    transaction_service_pb2_grpc as pb_grpc,
)

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


# ---- peers
# Asks nodes about transactions: by gRPC, and this node itself directly (`runtime.ports.TransactionPeers`).
#
# Invariant: each call has a deadline, and the asked node answers each of its questions before that.

DEADLINE_MS = 2_000
"""Deadline of one request. A question that is not answered by then is asked again, so a partition that cannot commit
delays others on its node by no more than this."""

_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER})

_Refusals = Sequence[Refusal | None]
"""One for each question; None: it was done."""
AddHere = Callable[[pb.AddPartitionsToTxnRequest, int], Awaitable[pb.AddPartitionsToTxnResponse]]
WriteHere = Callable[[leader_pb.WriteTxnMarkersRequest, int], Awaitable[leader_pb.WriteTxnMarkersResponse]]


class MetadataPlaces:
    """The nodes to ask, from this node's metadata (`runtime.ports.TransactionPlaces`)."""

    def __init__(self, host: Host, shards: ShardCalls) -> None:
        self._host = host
        self._shards = shards

    def coordinator_of(self, transactional_id: str) -> NodeId | Refusal:
        """The node that coordinates a transactional id, or why none can be asked now."""
        found = self._shards.coordinator_of(transactional_id)
        if isinstance(found, Refusal):
            return found
        if found.leader is None:
            message = "the coordinator of the transaction is being elected; ask again"
            return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return found.leader

    def leader_of(self, tp: TopicPartition) -> NodeId | Refusal:
        """The node that leads a partition, or why none can be asked now."""
        image = self._host.topics.partition(tp)
        if image is None:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {tp.partition} of {tp.topic_id} is known"
            )
        if image.leader is None:
            return Refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp.partition} of {tp.topic_id} has no leader")
        return image.leader


class DialledTransactionPeers:
    """Calls the nodes at their addresses in the metadata."""

    def __init__(
        self,
        host: Host,
        *,
        add_here: AddHere,
        write_here: WriteHere,
        keepalive: Keepalive | None = None,
        tls: Tls | None = None,
        deadline_ms: int = DEADLINE_MS,
    ) -> None:
        """``add_here`` and ``write_here`` are this node's own handlers."""
        self._host = host
        self._add_here = add_here
        self._write_here = write_here
        self._channels = Channels(keepalive=keepalive or Keepalive(), tls=tls)
        self._deadline_ms = deadline_ms
        self._closing: set[asyncio.Task[None]] = set()

    async def add_partitions(self, node: NodeId, questions: Sequence[messages.AddPartitions]) -> _Refusals:
        """Ask the coordinators on one node.

        Raises:
            Refused: the node refuses the request as a whole, or does not answer.
        """
        request = transactions.add_partitions_request(questions, self._host.topics, self._cluster_id)
        if node == self._host.node_id:
            return transactions.read_results(await self._add_here(request, self._deadline_ms), questions)
        stub = pb_grpc.TransactionServiceStub(self._channel_to(node))
        answer = await call(stub.AddPartitionsToTxn, request, deadline_ms=self._deadline_ms)
        return self._seen(node, transactions.read_results(answer, questions))

    async def write_markers(self, node: NodeId, questions: Sequence[messages.MarkerQuestion]) -> _Refusals:
        """Ask the leaders on one node to write markers; otherwise as `add_partitions`."""
        request = markers_request(questions, self._host.topics, self._cluster_id)
        if node == self._host.node_id:
            return read_marker_results(await self._write_here(request, self._deadline_ms), len(questions))
        stub = leader_pb_grpc.LeaderServiceStub(self._channel_to(node))
        answer = await call(stub.WriteTxnMarkers, request, deadline_ms=self._deadline_ms)
        return self._seen(node, read_marker_results(answer, len(questions)))

    def _seen(self, node: NodeId, answers: _Refusals) -> _Refusals:
        """Redial a node if its answers show that it is another one: a new process may have taken over its address, and
        nothing else would cause the name to be resolved again."""
        if any(answer is not None and answer.code in _ELSEWHERE for answer in answers):
            endpoint = self._host.topics.internal_endpoint_of(node)
            if endpoint is not None:
                self._channels.renew(endpoint, grace_s=self._deadline_ms / 1000)
        return answers

    def drop_stale(self) -> None:
        """Close channels to addresses that no node has any more."""
        stale = self._channels.endpoints - self._host.topics.internal_endpoints()
        if stale:
            task = asyncio.get_running_loop().create_task(self._channels.drop(stale))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every channel."""
        await asyncio.gather(*self._closing)
        await self._channels.close()

    def _channel_to(self, node: NodeId) -> Any:
        endpoint = self._host.topics.internal_endpoint_of(node)
        if endpoint is None:
            raise Refused(ErrorCode.NETWORK_EXCEPTION, f"no address of node {node} is known")
        return cast(Any, self._channels.to(endpoint))

    @property
    def _cluster_id(self) -> str:
        cluster_id = self._host.topics.cluster_id
        assert cluster_id is not None, "a node is asked only after metadata has named it"
        return cluster_id
