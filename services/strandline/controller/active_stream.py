"""A standby's stream to the active controller: that it breaks is the first sign of the other's end (C19)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
from grpc_health.v1 import health_pb2

from strandline.core.messages import Endpoint
from strandline.core.reign_events import Holder
from strandline.rpc.channels import Channels
from strandline.runtime.own_tasks import OwnTasks

_AGAIN_S = 0.2


class ActiveStream:
    """Holds one stream, to the controller that was named last.

    ``address_of`` gives a holder's internal address while it is known to decide, else None; ``is_wanted`` says whether
    this controller still waits for that holder's end; ``lost`` gets each holder whose open stream broke.
    """

    def __init__(
        self,
        channels: Channels,
        tasks: OwnTasks,
        *,
        address_of: Callable[[Holder], Endpoint | None],
        is_wanted: Callable[[Holder], bool],
        lost: Callable[[Holder], None],
    ) -> None:
        self._channels = channels
        self._tasks = tasks
        self._address_of = address_of
        self._is_wanted = is_wanted
        self._lost = lost
        self._streaming: tuple[int, asyncio.Task[None]] | None = None

    def follow(self, holder: Holder) -> None:
        """Stream to this one from now on; a stream to the same reign is kept."""
        if self._streaming is not None:
            token, streaming = self._streaming
            if token == holder.token:
                return
            streaming.cancel()
        self._streaming = holder.token, self._tasks.own(self._stream_to(holder))

    async def _stream_to(self, holder: Holder) -> None:
        while self._is_wanted(holder):
            address = self._address_of(holder)
            if address is not None and await self._was_open(address):
                self._lost(holder)
            await asyncio.sleep(_AGAIN_S)

    async def _was_open(self, address: Endpoint) -> bool:
        """Returns, when the stream has broken, whether it was ever open."""
        opened = False
        watch = self._channels.to(address).unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        stream = watch(health_pb2.HealthCheckRequest(service=""))
        try:
            async for _ in stream:
                opened = True
        except grpc.aio.AioRpcError:
            return opened
        finally:
            stream.cancel()
        return opened
