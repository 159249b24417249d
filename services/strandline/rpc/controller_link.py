"""How this process reaches the controller: at one of several bootstrap addresses, after a failure at the next.

Invariant: every call has a deadline; a call without an answer raises `Refused` and is not retried here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

import grpc

from strandline.core import messages
from strandline.core.control.messages import AllocateProducerIds, ProducerIdsAllocated
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.types import NodeEpoch, NodeId
from strandline.rpc.channels import Channels, Keepalive, UnaryMethod, call, parse_endpoint
from strandline.rpc.convert import admin, controller as convert
from strandline.rpc.convert.errors import read_error
from strandline.rpc.convert.metadata import POSITION, read_watch_answer
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import Tls
from strandline.v1 import controller_service_pb2 as pb, controller_service_pb2_grpc as pb_grpc

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

_ELSEWHERE = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
"""Errors after which the next address is tried."""


class ControllerLink:
    """The controller as a node sees it (`runtime.ports.Controller`)."""

    def __init__(
        self,
        bootstrap: Sequence[messages.Endpoint],
        *,
        register_deadline_ms: int = 5_000,
        alter_deadline_ms: int = 5_000,
        keepalive: Keepalive | None = None,
        tls: Tls | None = None,
    ) -> None:
        assert bootstrap, "at least one bootstrap address is needed"
        self._bootstrap = tuple(bootstrap)
        self._at = 0
        self._hinted: messages.Endpoint | None = None
        self._hint_epoch = 0
        self._channels = Channels(keepalive=keepalive or Keepalive(), tls=tls)
        self._register_deadline_ms = register_deadline_ms
        self._alter_deadline_ms = alter_deadline_ms

    async def close(self) -> None:
        """Close the channels."""
        await self._channels.close()

    @property
    def endpoint(self) -> messages.Endpoint:
        """The address that calls go to now."""
        return self._hinted or self._bootstrap[self._at]

    async def register(self, request: messages.RegisterNode) -> messages.NodeRegistered:
        """RegisterNode. A refusal is in the answer, or raised if it is of the call as a whole."""
        message = convert.write_registration(request)
        return convert.REGISTERED.read(await self._call(self._stub().RegisterNode, message, self._register_deadline_ms))

    async def heartbeat(self, request: messages.Heartbeat, deadline_ms: int) -> messages.HeartbeatAnswer:
        """Heartbeat."""
        message = convert.write_heartbeat(request)
        return convert.read_heartbeat_answer(await self._call(self._stub().Heartbeat, message, deadline_ms))

    async def alter_partition(self, request: messages.AlterPartitionRequest) -> messages.AlterPartitionAnswer:
        """AlterPartition."""
        message = convert.write_alter_partition(request)
        return convert.read_alter_partition_answer(
            await self._call(self._stub().AlterPartition, message, self._alter_deadline_ms)
        )

    async def report_logs(self, request: messages.ReportReplicaLogs) -> messages.ReplicaLogsReported:
        """ReportReplicaLogs."""
        message = convert.write_report(request)
        return convert.REPORTED.read(await self._call(self._stub().ReportReplicaLogs, message, self._alter_deadline_ms))

    async def allocate_producer_ids(self, request: AllocateProducerIds) -> ProducerIdsAllocated:
        """AllocateProducerIds."""
        message = admin.ALLOCATE_PRODUCER_IDS.write(request)
        return admin.PRODUCER_IDS.read(
            await self._call(self._stub().AllocateProducerIds, message, self._alter_deadline_ms)
        )

    async def create_internal_topic(self, name: str) -> Refusal | None:
        """CreateTopics, with the controller's defaults; None if the topic exists now, no matter who created it."""
        message = pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name=name)])
        answer = await self._call(self._stub().CreateTopics, message, self._alter_deadline_ms)
        refusal = read_error(answer.topics[0]) if answer.topics else None
        return None if refusal is None or refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS else refusal

    async def watch(
        self, cluster_id: str, node_id: NodeId, node_epoch: NodeEpoch, position: messages.PositionProof | None
    ) -> AsyncGenerator[messages.MetadataImage | None, None]:
        """Yield the images of WatchMetadata until the stream breaks; None is a sign of life."""
        proof = POSITION.write(position) if position is not None else None
        request = pb.WatchMetadataRequest(cluster_id=cluster_id, node_id=node_id, node_epoch=node_epoch, position=proof)
        asked = self.endpoint
        stream = self._stub().WatchMetadata(request)
        try:
            async for message in stream:
                yield read_watch_answer(message)
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            self._leave(asked, error, refusal)
            raise Refused.of(refusal) from error
        finally:
            stream.cancel()

    def _stub(self) -> pb_grpc.ControllerServiceAsyncStub:
        return pb_grpc.ControllerServiceStub(self._channels.to(self.endpoint))

    async def _call(self, method: UnaryMethod[_Request, _Answer], request: _Request, deadline_ms: int) -> _Answer:
        asked = self.endpoint
        try:
            return await call(method, request, deadline_ms=deadline_ms)
        except Refused as error:
            self._leave(asked, error.__cause__, error.refusal)
            raise

    def _leave(self, asked: messages.Endpoint, error: BaseException | None, refusal: Refusal) -> None:
        if isinstance(error, grpc.aio.AioRpcError) and _is_another_process(error):
            # The connection works, so nothing else would cause a new lookup of the controller's name.
            self._channels.renew(asked, grace_s=self._register_deadline_ms / 1000)
        if asked == self.endpoint:
            # Otherwise another call, which failed before this one, has turned already.
            self._maybe_turn(refusal)

    def _maybe_turn(self, refusal: Refusal) -> None:
        """Choose where to ask next: once the active controller that a standby named, else the next address (C31)."""
        if refusal.code not in _ELSEWHERE:
            return
        hint, asked = refusal.hint, self._hinted
        self._hinted = None
        if asked is None and hint is not None and hint.internal_endpoint and hint.controller_epoch >= self._hint_epoch:
            self._hint_epoch = hint.controller_epoch
            self._hinted = parse_endpoint(hint.internal_endpoint)
        else:
            self._at = (self._at + 1) % len(self._bootstrap)


def _is_another_process(error: grpc.aio.AioRpcError) -> bool:
    """Whether the answer came from something other than a controller: another service, or a data node."""
    return error.code() is grpc.StatusCode.UNIMPLEMENTED or refusal_of(error).code is ErrorCode.NOT_CONTROLLER
