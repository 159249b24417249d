"""Asks nodes about transactions: by gRPC, and this node itself directly (`runtime.ports.TransactionPeers`).

Invariant: each call has a deadline, and the asked node answers each of its questions before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.transactions.messages import AddPartitions, MarkerQuestion
from strandline.core.types import NodeId, TopicPartition
from strandline.node.shard_calls import ShardCalls
from strandline.rpc.channels import Channels, Keepalive, call
from strandline.rpc.convert.produce import markers_request, read_marker_results
from strandline.rpc.convert.transactions import add_partitions_request, read_results
from strandline.rpc.tls import Tls
from strandline.runtime.host import Host
from strandline.v1 import (
    leader_service_pb2,
    leader_service_pb2_grpc,
    transaction_service_pb2 as pb,
    transaction_service_pb2_grpc,
)

DEADLINE_MS = 2_000
"""Deadline of one request. A question that is not answered by then is asked again, so a partition that cannot commit
delays others on its node by no more than this."""

_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER})

AddHere = Callable[[pb.AddPartitionsToTxnRequest, int], Awaitable[pb.AddPartitionsToTxnResponse]]
WriteHere = Callable[
    [leader_service_pb2.WriteTxnMarkersRequest, int], Awaitable[leader_service_pb2.WriteTxnMarkersResponse]
]


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

    async def add_partitions(self, node: NodeId, questions: Sequence[AddPartitions]) -> Sequence[Refusal | None]:
        """Ask the coordinators on one node.

        Raises:
            Refused: the node refuses the request as a whole, or does not answer.
        """
        request = add_partitions_request(questions, self._host.topics, self._cluster_id)
        if node == self._host.node_id:
            return read_results(await self._add_here(request, self._deadline_ms), questions)
        stub = transaction_service_pb2_grpc.TransactionServiceStub(self._channel_to(node))
        answer = await call(stub.AddPartitionsToTxn, request, deadline_ms=self._deadline_ms)
        return self._seen(node, read_results(answer, questions))

    async def write_markers(self, node: NodeId, questions: Sequence[MarkerQuestion]) -> Sequence[Refusal | None]:
        """Ask the leaders on one node to write markers; otherwise as `add_partitions`."""
        request = markers_request(questions, self._host.topics, self._cluster_id)
        if node == self._host.node_id:
            return read_marker_results(await self._write_here(request, self._deadline_ms), len(questions))
        stub = leader_service_pb2_grpc.LeaderServiceStub(self._channel_to(node))
        answer = await call(stub.WriteTxnMarkers, request, deadline_ms=self._deadline_ms)
        return self._seen(node, read_marker_results(answer, len(questions)))

    def _seen(self, node: NodeId, answers: Sequence[Refusal | None]) -> Sequence[Refusal | None]:
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
