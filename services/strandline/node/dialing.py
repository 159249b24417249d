"""Reaches leaders by gRPC (`runtime.ports.Leaders`): channels, a FetchStream's messages, calls with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, cast

import grpc

from strandline.core.errors import ErrorCode, Refused
from strandline.core.log.effects import SendEpochEnds, SendFetch, SendForget, SendListOffsets, SendProducerSnapshot
from strandline.core.messages import Endpoint, EpochEndAnswer, OffsetAnswer, ProducerSnapshotAnswer, ReplicaState
from strandline.core.types import NodeId
from strandline.rpc.channels import Backoff, Channels, Keepalive, call, channel_closed
from strandline.rpc.convert.errors import read_error
from strandline.rpc.convert.fetch import (
    StreamAnswer,
    fetch_stream_message,
    forget_message,
    open_fetch_stream,
    read_fetched,
)
from strandline.rpc.convert.offsets import epoch_ends_request, list_offsets_request, read_epoch_ends, read_offsets
from strandline.rpc.convert.producers import producer_snapshot_request, read_producer_snapshot
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import Tls
from strandline.runtime.host import Host
from strandline.runtime.ports import FetchReply
from strandline.v1 import leader_service_pb2 as pb, leader_service_pb2_grpc as pb_grpc, partition_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Durations in ms."""

    question_deadline_ms: int = 5_000
    """Deadline of OffsetForLeaderEpoch and ListOffsets."""
    reconnect_backoff_ms: int = 20
    reconnect_backoff_max_ms: int = 1_000
    ping_every_ms: int = 2_000
    ping_timeout_ms: int = 2_000
    """A leader that does not answer a ping within this time is given up, even if its kernel still acks TCP."""

    def backoff(self) -> Backoff:
        """The waits between two streams to the same leader."""
        return Backoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms)


class FetchCall:
    """One FetchStream call in progress (`runtime.ports.FetchConversation`)."""

    def __init__(self, call_: Any, leader: NodeId, cluster_id: str) -> None:
        self._call = call_  # its stub types nothing of read and write
        self._leader = leader
        self._cluster_id = cluster_id

    async def write(self, message: SendFetch | SendForget) -> None:
        """Send a fetch, or the end of parked ones."""
        await self._call.write(self._encoded(message))

    def _encoded(self, message: SendFetch | SendForget) -> pb.FetchStreamRequest:
        if isinstance(message, SendForget):
            return forget_message(message.partitions, cluster_id=self._cluster_id, correlation_id=0)
        return fetch_stream_message(message.request, cluster_id=self._cluster_id, correlation_id=message.correlation_id)

    async def read(self) -> FetchReply | None:
        """The next answer; None when the leader ended the stream.

        Raises:
            Refused: the stream broke.
        """
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise Refused.of(refusal_of(error)) from error
        except asyncio.CancelledError:
            raise channel_closed() from None
        return None if answer is grpc.aio.EOF else self._read(answer)

    def _read(self, arrived: StreamAnswer) -> FetchReply:
        answer = arrived.message
        refusal = read_error(answer)
        if refusal is not None:
            return FetchReply(answer.correlation_id, (), refusal)
        is_another = any(_is_another(self._leader, row) for topic in answer.responses for row in topic.partitions)
        partitions = read_fetched(arrived)
        return FetchReply(answer.correlation_id, partitions, is_another=is_another)

    def cancel(self) -> None:
        """End the call."""
        self._call.cancel()


class DialledLeaders:
    """The leaders, at their addresses in the metadata (`runtime.ports.Leaders`)."""

    def __init__(self, host: Host, settings: FollowerSettings | None = None, *, tls: Tls | None = None) -> None:
        self._host = host
        self._settings = settings or FollowerSettings()
        keepalive = Keepalive(
            ping_every_ms=self._settings.ping_every_ms, ping_timeout_ms=self._settings.ping_timeout_ms
        )
        self._channels = Channels(keepalive=keepalive, tls=tls)

    def open_stream(self, leader: NodeId) -> FetchCall:
        """Open a FetchStream.

        Raises:
            Refused: NETWORK_EXCEPTION, no address of the node is known.
        """
        call_ = open_fetch_stream(self._channels.to(self._endpoint_of(leader)))
        return FetchCall(call_, leader, self._cluster_id)

    async def epoch_ends(self, effect: SendEpochEnds) -> tuple[EpochEndAnswer, ...]:
        """Ask for the end offsets of epochs.

        Raises:
            Refused: by the leader, or because it does not answer.
        """
        request = epoch_ends_request(effect.questions, cluster_id=self._cluster_id, replica=self._identity)
        return read_epoch_ends(await self._call(effect.leader, "OffsetForLeaderEpoch", request))

    async def list_offsets(self, effect: SendListOffsets) -> tuple[OffsetAnswer, ...]:
        """Ask for the leader's first and last offset.

        Raises:
            Refused: as `epoch_ends`.
        """
        request = list_offsets_request(effect.questions, cluster_id=self._cluster_id, replica=self._identity)
        return read_offsets(await self._call(effect.leader, "ListOffsets", request))

    async def producer_snapshot(self, effect: SendProducerSnapshot) -> ProducerSnapshotAnswer:
        """Ask for the producer state below the leader's log start.

        Raises:
            Refused: as `epoch_ends`; UNSUPPORTED_VERSION if the leader's release has no such method.
        """
        request = producer_snapshot_request(effect.question, cluster_id=self._cluster_id, replica=self._identity)
        return read_producer_snapshot(
            await self._call(effect.leader, "FetchProducerSnapshot", request), effect.question.tp
        )

    async def _call(self, leader: NodeId, method: str, request: Any) -> Any:
        stub_method: Callable[..., Any] = getattr(self._stub(self._endpoint_of(leader)), method)
        return await call(stub_method, request, deadline_ms=self._settings.question_deadline_ms)

    def renew(self, leader: NodeId) -> None:
        """Resolve the leader's name again when it is next dialled; calls under way may end on the old channel."""
        endpoint = self._host.topics.internal_endpoint_of(leader)
        if endpoint is not None:
            self._channels.renew(endpoint, grace_s=self._settings.question_deadline_ms / 1000)

    def drop_stale(self) -> Coroutine[Any, Any, None] | None:
        """A coroutine that closes channels to addresses that no node has any more; None if there are none."""
        stale = self._channels.endpoints - self._host.topics.internal_endpoints()
        return self._channels.drop(stale) if stale else None

    async def close(self) -> None:
        """Close every channel."""
        await self._channels.close()

    def _endpoint_of(self, leader: NodeId) -> Endpoint:
        endpoint = self._host.topics.internal_endpoint_of(leader)
        if endpoint is None:
            raise Refused(ErrorCode.NETWORK_EXCEPTION, f"no address of node {leader} is known")
        return endpoint

    def _stub(self, endpoint: Endpoint) -> Any:
        return pb_grpc.LeaderServiceStub(cast(Any, self._channels.to(endpoint)))

    @property
    def _cluster_id(self) -> str:
        cluster_id = self._host.topics.cluster_id
        assert cluster_id is not None, "a leader is asked only after metadata has named it"
        return cluster_id

    @property
    def _identity(self) -> ReplicaState:
        assert self._host.node_epoch is not None, "a leader is asked only after registration"
        return ReplicaState(self._host.node_id, self._host.node_epoch)


def _is_another(asked: NodeId, row: partition_pb2.FetchPartitionResponse) -> bool:
    """Whether an answer shows that another node sent it: it does not lead, and names the asked node as leader."""
    return (
        int(row.error_code) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        and row.current_leader.HasField("leader_id")
        and row.current_leader.leader_id == asked
    )
