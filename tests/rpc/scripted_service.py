"""A server with LeaderService whose handlers a test provides: for every layer between gRPC and a servicer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from strandline.core.messages import Endpoint
from strandline.rpc.channels import message_limits, open_channel
from strandline.rpc.interceptors import RefusalInterceptor, Reported
from strandline.rpc.server import bind
from strandline.rpc.transports import aio
from strandline.v1 import leader_service_pb2 as pb, leader_service_pb2_grpc as pb_grpc

Handler = Callable[[Any, Any], Awaitable[Any]]


class Scripted:
    """LeaderService with the given handlers; every other method is missing."""

    def __init__(self, **handlers: Handler) -> None:
        for method in pb.DESCRIPTOR.services_by_name["LeaderService"].methods:
            setattr(self, method.name, handlers.get(method.name))


@asynccontextmanager
async def serving(
    *, unary_cap_s: float = 60.0, reported: Reported = lambda _method, _why: None, **handlers: Handler
) -> AsyncIterator[Any]:
    """A stub of a served `Scripted`."""
    server = aio().server(
        interceptors=[RefusalInterceptor("test", unary_cap_s=unary_cap_s, reported=reported)],
        options=[*message_limits(), ("grpc.so_reuseport", 0)],
    )
    pb_grpc.add_LeaderServiceServicer_to_server(cast(Any, Scripted(**handlers)), server)
    endpoint = bind(server, Endpoint("127.0.0.1", 0))
    await server.start()
    channel = open_channel(endpoint)
    try:
        stub: Any = pb_grpc.LeaderServiceStub(channel)
        stub.endpoint = endpoint
        yield stub
    finally:
        await channel.close()
        await server.stop(0)
