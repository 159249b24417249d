"""LeaderService behind TLS and the permission table, with handlers that a test provides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from strandline.core.messages import Endpoint
from strandline.rpc.channels import open_channel
from strandline.rpc.server import RoleHealth, ServerSettings, bind, build_server
from strandline.rpc.tls import Tls
from strandline.rpc.tokens import Tokens
from strandline.v1 import leader_service_pb2 as pb, leader_service_pb2_grpc as pb_grpc

SERVICE = "strandline.v1.LeaderService"
_METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["LeaderService"].methods]

Handler = Callable[[Any, Any], Awaitable[Any]]


class _Handlers:
    def __init__(self, **handlers: Handler) -> None:
        for name in _METHODS:
            setattr(self, name, handlers.get(name))


@asynccontextmanager
async def guarded(tls: Tls | None, *, tokens: Tokens | None = None, **handlers: Handler) -> AsyncIterator[Endpoint]:
    """The address of a server with this certificate, or in plain text without one."""
    server = build_server(ServerSettings(name="guarded"), tls=tls, tokens=tokens)
    pb_grpc.add_LeaderServiceServicer_to_server(cast(Any, _Handlers(**handlers)), server)
    health = RoleHealth([SERVICE])
    health.attach(server)
    endpoint = bind(server, Endpoint("127.0.0.1", 0), tls=tls, takes_tokens=tokens is not None)
    await server.start()
    await health.set_serving(True)
    try:
        yield endpoint
    finally:
        await server.stop(0)


@asynccontextmanager
async def stub(endpoint: Endpoint, tls: Tls | None) -> AsyncIterator[Any]:
    """LeaderService as the holder of this certificate reaches it."""
    async with open_channel(endpoint, tls=tls) as channel:
        yield pb_grpc.LeaderServiceStub(channel)
