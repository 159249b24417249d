"""The one table of a server's methods: what is found in it, and what the number of methods costs a call: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from scripted_service import Scripted

from strandline.core.messages import Endpoint
from strandline.rpc.channels import open_channel
from strandline.rpc.server import RoleHealth, ServerSettings, bind, build_server
from strandline.v1 import group_service_pb2_grpc, leader_service_pb2_grpc, metadata_service_pb2_grpc
from strandline.v1 import leader_service_pb2 as pb


class Nothing:
    """Has every method; none is called."""

    def __getattr__(self, name: str) -> Any:
        async def unexpected(request: Any, context: Any) -> None:
            raise AssertionError(f"{name} was called")

        return unexpected


async def _answer(request: pb.ProduceRequest, context: Any) -> pb.ProduceResponse:
    return pb.ProduceResponse()


@asynccontextmanager
async def _served(*interceptors: grpc.aio.ServerInterceptor) -> AsyncIterator[Any]:
    """A channel to a server of three services and health, of which LeaderService.Produce answers."""
    server = build_server(ServerSettings(name="x", reflection=False), interceptors)
    leader_service_pb2_grpc.add_LeaderServiceServicer_to_server(cast(Any, Scripted(Produce=_answer)), server)
    group_service_pb2_grpc.add_GroupServiceServicer_to_server(cast(Any, Nothing()), server)
    metadata_service_pb2_grpc.add_MetadataServiceServicer_to_server(cast(Any, Nothing()), server)
    health = RoleHealth([])
    health.attach(server)
    await health.begin()
    endpoint = bind(server, Endpoint("127.0.0.1", 0))
    await server.start()
    async with open_channel(endpoint) as channel:
        yield channel
    await server.stop(0)


async def test_a_server_waits_for_one_next_call_of_all_its_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC's loop waits for as many futures as methods were registered, again for each call: here for one."""
    waits: list[int] = []
    wait = asyncio.wait

    def counted(futures: Collection[Any], **named: Any) -> Awaitable[Any]:
        waits.append(len(futures))
        return wait(futures, **named)

    monkeypatch.setattr(asyncio, "wait", counted)
    async with _served() as channel:
        stub: Any = leader_service_pb2_grpc.LeaderServiceStub(channel)
        for _ in range(5):
            await stub.Produce(pb.ProduceRequest(), timeout=5)

    assert len(waits) >= 5
    assert set(waits) == {1}


async def test_methods_of_every_service_are_found() -> None:
    """Ours and those of health alike; health comes with generated code of its own."""
    async with _served() as channel:
        leader: Any = leader_service_pb2_grpc.LeaderServiceStub(channel)
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await leader.Produce(pb.ProduceRequest(), timeout=5)
        said = await health.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=5)

    assert answer == pb.ProduceResponse()
    assert said.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("method", ["/strandline.v1.LeaderService/Unheard", "/strandline.v1.NoService/Produce"])
async def test_a_method_that_nobody_serves_is_unimplemented(method: str) -> None:
    """By that clients tell an earlier release."""
    async with _served() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(method)(b"", timeout=5)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


class Asked(grpc.aio.ServerInterceptor):
    """Notes for which method it was asked."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        self.methods.append(details.method)
        return await continuation(details)


async def test_interceptors_are_asked_once_for_each_method() -> None:
    """What an interceptor puts around a handler stays; each call goes through that, and not through the asking."""
    asked = Asked()
    async with _served(asked) as channel:
        leader: Any = leader_service_pb2_grpc.LeaderServiceStub(channel)
        health: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            await leader.Produce(pb.ProduceRequest(), timeout=5)
            await health.Check(health_pb2.HealthCheckRequest(), timeout=5)

    assert asked.methods == ["/strandline.v1.LeaderService/Produce", "/grpc.health.v1.Health/Check"]
