"""Every server of the project: its port, its limits, its table of methods, its probes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from scripted_service import Scripted, serving

from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.core.messages import Endpoint
from strandline.rpc import server as rpc_server
from strandline.rpc.channels import MAX_MESSAGE_BYTES, Keepalive, open_channel, target
from strandline.rpc.interceptors import BeforeRegistration
from strandline.rpc.transports import aio
from strandline.v1 import (
    group_service_pb2_grpc,
    leader_service_pb2 as pb,
    leader_service_pb2_grpc,
    metadata_service_pb2_grpc,
)

pytestmark = pytest.mark.usefixtures("carried_by")

LOOPBACK = Endpoint("127.0.0.1", 0)
SERVICE = "strandline.v1.LeaderService"


async def test_a_second_server_on_a_taken_port_is_refused() -> None:
    """Two servers never share a port silently."""
    second = rpc_server.build_server(rpc_server.ServerSettings(name="second"))
    async with _running() as endpoint:
        with pytest.raises(rpc_server.PortTaken, match=f"127.0.0.1:{endpoint.port}"):
            rpc_server.bind(second, endpoint)
    await second.stop(0)


@asynccontextmanager
async def _running(health: rpc_server.RoleHealth | None = None, **settings: Any) -> AsyncIterator[Endpoint]:
    """Where a server with these settings listens, which serves health and reflection if ``health`` is given."""
    server = rpc_server.build_server(rpc_server.ServerSettings(name="test", **settings))
    if health is not None:
        health.attach(server)
    endpoint = rpc_server.bind(server, LOOPBACK)
    await server.start()
    yield endpoint
    await server.stop(0)


async def _echo(request: pb.ProduceRequest, context: Any) -> pb.ProduceResponse:
    size = len(request.topic_data[0].partition_data[0].records)
    answer = pb.ProduceResponse()
    answer.responses.add(name="x" * size)
    return answer


def _request(size_bytes: int) -> pb.ProduceRequest:
    return pb.ProduceRequest(
        topic_data=[pb.ProduceTopic(name="t", partition_data=[pb.ProducePartition(records=bytes(size_bytes))])]
    )


async def test_messages_up_to_the_limit_pass_in_both_directions() -> None:
    """8 MiB go in and come out: gRPC's default of 4 MB is raised on both sides."""
    async with serving(Produce=_echo) as stub:
        answer = await stub.Produce(_request(8 << 20), timeout=20)

    assert len(answer.responses[0].name) == 8 << 20


async def test_a_message_beyond_the_limit_is_refused_by_the_sender() -> None:
    """A message larger than 8 MiB + 64 KiB is RESOURCE_EXHAUSTED before it is sent."""
    async with serving(Produce=_echo) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Produce(_request(MAX_MESSAGE_BYTES + 1), timeout=20)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_message_beyond_the_limit_is_refused_by_the_receiver() -> None:
    """64 MB from a sender without limits are rejected, and the server continues to serve."""
    async with serving(Produce=_echo) as stub:
        options = [("grpc.max_send_message_length", -1)]
        async with aio().insecure_channel(f"127.0.0.1:{stub.endpoint.port}", options=options) as channel:
            method = channel.unary_unary("/strandline.v1.LeaderService/Produce")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(bytes(64_000_000), timeout=20)
        answer = await stub.Produce(_request(1), timeout=5)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert answer.responses[0].name == "x"


async def test_random_bytes_on_the_port_do_no_harm() -> None:
    """A peer that does not use HTTP/2 is dropped, and the next caller is served."""
    async with serving(Produce=_echo) as stub:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", stub.endpoint.port)) as peer:
                peer.sendall(os.urandom(4096))
        answer = await stub.Produce(_request(1), timeout=5)

    assert answer.responses[0].name == "x"


async def test_a_message_that_is_no_protobuf_ends_only_its_call() -> None:
    """Bytes that do not decode end their own call; the server continues to serve."""
    async with serving(Produce=_echo) as stub:
        async with open_channel(stub.endpoint) as channel:
            method = channel.unary_unary("/strandline.v1.LeaderService/Produce")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(b"\xff\xff\xff\xff", timeout=5)
        answer = await stub.Produce(_request(1), timeout=5)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "the bytes are no message of this method" in str(caught.value.details())
    assert "DecodeError" not in repr(caught.value)
    assert answer.responses[0].name == "x"


async def test_health_is_reported_per_service_and_for_all() -> None:
    """Health answers under the empty name and under each service's own."""
    health = rpc_server.RoleHealth([SERVICE])
    async with _running(health) as endpoint, open_channel(endpoint) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        await health.set_serving(True)
        serving_now = [
            (await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)).status for name in ("", SERVICE)
        ]
        await health.set_serving(False)
        stopping = (await stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=5)).status

    assert serving_now == [health_pb2.HealthCheckResponse.SERVING] * 2
    assert stopping == health_pb2.HealthCheckResponse.NOT_SERVING


async def _reflected(**asked: str) -> Any:
    """What reflection answers to this question."""
    async with _running(rpc_server.RoleHealth([SERVICE])) as endpoint, open_channel(endpoint) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        return await stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**asked)])).read()


async def test_reflection_lists_the_roles_service() -> None:
    """grpcurl can list what is served."""
    answer = await _reflected(list_services="")

    assert SERVICE in [service.name for service in answer.list_services_response.service]


@pytest.mark.parametrize(("symbol", "is_found"), [("Produce", True), ("Brew", False), ("", False)])
async def test_reflection_describes_a_method(symbol: str, is_found: bool) -> None:
    """`grpcurl describe` finds a method by its full name, and reports when there is none."""
    answer = await _reflected(file_containing_symbol=f"{SERVICE}.{symbol}")

    assert answer.HasField("file_descriptor_response") is is_found
    assert answer.HasField("error_response") is not is_found


async def test_an_internal_port_welcomes_frequent_pings() -> None:
    """Both ends are configured: pings every 100 ms without a call do not lead to too_many_pings."""
    keepalive = Keepalive(ping_every_ms=100, ping_timeout_ms=1_000)
    health = rpc_server.RoleHealth([SERVICE])
    async with (
        _running(health, internal_keepalive=keepalive) as endpoint,
        open_channel(endpoint, keepalive=keepalive) as channel,
    ):
        await health.set_serving(True)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
        first = await watch.read()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.read(), 1.2)

    assert first.status == health_pb2.HealthCheckResponse.SERVING


def _frame(kind: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2 on the connection itself."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, 0)) + bytes(4) + payload


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4)
_PING = _frame(6, b"12345678")


@pytest.mark.parametrize("keepalive", [None, Keepalive()], ids=["clients", "internal"])
async def test_a_flood_of_pings_is_cut_off(keepalive: Keepalive | None) -> None:
    """On both ports: a connection that sends nothing but pings is ended with too_many_pings."""
    async with _running(internal_keepalive=keepalive) as endpoint, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*endpoint)
        writer.write(_PREFACE)
        said = b""
        while b"too_many_pings" not in said:
            with contextlib.suppress(ConnectionError):
                writer.write(_PING * 100)
                await writer.drain()
            # Each accepted ping gets an acknowledgement.
            received = await reader.read(1 << 16)
            assert received, "the connection ended without a word"
            said = said[-100:] + received
        writer.close()


async def test_a_connection_that_says_nothing_is_ended() -> None:
    """A silent connection is ended after a time limit, and frees its slot."""
    async with _running(handshake_ms=100) as endpoint, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*endpoint)
        said = await reader.read()
        writer.close()

    assert b"handshake timeout" in said


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
    server = rpc_server.build_server(rpc_server.ServerSettings(name="x", reflection=False), interceptors)
    leader_service_pb2_grpc.add_LeaderServiceServicer_to_server(cast(Any, Scripted(Produce=_answer)), server)
    group_service_pb2_grpc.add_GroupServiceServicer_to_server(cast(Any, Nothing()), server)
    metadata_service_pb2_grpc.add_MetadataServiceServicer_to_server(cast(Any, Nothing()), server)
    health = rpc_server.RoleHealth([])
    health.attach(server)
    await health.begin()
    endpoint = rpc_server.bind(server, Endpoint("127.0.0.1", 0))
    await server.start()
    async with open_channel(endpoint) as channel:
        yield channel
    await server.stop(0)


@pytest.mark.parametrize("carried_by", ["grpcio"], indirect=True)
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


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def _said(endpoint: Endpoint | None) -> list[int]:
    """Liveness, readiness and the empty name."""
    assert endpoint is not None
    async with open_channel(endpoint) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answers = [
            await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            for name in (rpc_server.LIVENESS, rpc_server.READINESS, "")
        ]
    return [answer.status for answer in answers]


async def test_what_does_not_serve_is_never_ready() -> None:
    """Readiness ends with the services at a stop, and begins only once they are there."""
    health = rpc_server.RoleHealth([])
    port = rpc_server.HealthPort("test", health)
    endpoint = await port.open("127.0.0.1:0")

    begun = await _said(endpoint)
    await health.set_ready(True)
    ready_alone = await _said(endpoint)
    await health.set_serving(True)
    serving = await _said(endpoint)
    await health.set_serving(False)
    stopping = await _said(endpoint)
    await port.close()

    assert begun == [SERVING, NOT_SERVING, NOT_SERVING]
    assert ready_alone == [SERVING, NOT_SERVING, NOT_SERVING]
    assert serving == [SERVING, SERVING, SERVING]
    assert stopping == [SERVING, NOT_SERVING, NOT_SERVING]


async def test_no_address_means_no_port() -> None:
    """An empty setting opens nothing, and closing is harmless."""
    port = rpc_server.HealthPort("test", rpc_server.RoleHealth([]))

    assert await port.open("") is None
    await port.close()


async def test_a_taken_port_is_said() -> None:
    """Two processes never share the port silently."""
    first, second = (
        rpc_server.HealthPort("first", rpc_server.RoleHealth([])),
        rpc_server.HealthPort("second", rpc_server.RoleHealth([])),
    )
    endpoint = await first.open("127.0.0.1:0")
    assert endpoint is not None

    with pytest.raises(rpc_server.PortTaken, match=str(endpoint.port)):
        await second.open(target(endpoint))

    await first.close()
    await second.close()


OPEN, CLOSED = "strandline.v1.MetadataService", "strandline.v1.LeaderService"


class Gate:
    """A gate, and whether its process is registered."""

    def __init__(self) -> None:
        self.is_registered = False
        self._gate = BeforeRegistration(frozenset({OPEN}), lambda: self.is_registered)

    async def handler_of(self, service: str, handler: Any) -> Any:
        """The handler that gRPC is given for a method of ``service``."""

        async def continuation(_: object) -> Any:
            return handler

        details: Any = SimpleNamespace(method=f"/{service}/Method")
        return await self._gate.intercept_service(continuation, details)


async def answer(request: object, _: object) -> object:
    """A unary handler, or one of a stream that writes for itself."""
    return request


async def generate(request: object, _: object) -> AsyncIterator[object]:
    """A handler that generates its answers."""
    yield request


KINDS: dict[str, tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
    "unary": (grpc.unary_unary_rpc_method_handler(answer), lambda it: it.unary_unary("asked", None)),
    "a generated stream": (
        grpc.unary_stream_rpc_method_handler(generate),
        lambda it: anext(it.unary_stream("asked", None)),
    ),
    "a stream both ways": (grpc.stream_stream_rpc_method_handler(answer), lambda it: it.stream_stream("asked", None)),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_is_refused_until_the_process_is_registered(kind: str) -> None:
    """The caller learns that nothing was appended and that it may ask again, before the first answer of a stream; the
    same handler, which other interceptors keep, answers once the process is registered."""
    gate, (given, called) = Gate(), KINDS[kind]
    handler = await gate.handler_of(CLOSED, given)
    with pytest.raises(Refused) as refused:
        await called(handler)
    refusal = refused.value.refusal
    gate.is_registered = True

    assert (refusal.code, refusal.outcome) == (ErrorCode.NETWORK_EXCEPTION, Outcome.NOT_APPENDED)
    assert refusal.retriable
    assert await called(handler) == "asked"


async def test_an_open_service_passes_as_it_is() -> None:
    """What serves metadata is not wrapped."""
    given = grpc.unary_unary_rpc_method_handler(answer)

    assert await Gate().handler_of(OPEN, given) is given


async def test_a_method_that_nobody_serves_stays_unknown() -> None:
    """gRPC answers UNIMPLEMENTED, by which clients tell an earlier release."""
    assert await Gate().handler_of(CLOSED, None) is None
