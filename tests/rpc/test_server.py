"""Every server of the project: its port is its own, its limits hold both ways, invalid traffic does no harm."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from scripted_service import serving

from strandline.core.messages import Endpoint
from strandline.rpc.channels import MAX_MESSAGE_BYTES, Keepalive, open_channel
from strandline.rpc.server import PortTaken, RoleHealth, ServerSettings, bind, build_server
from strandline.v1 import leader_service_pb2 as pb

LOOPBACK = Endpoint("127.0.0.1", 0)
SERVICE = "strandline.v1.LeaderService"


async def test_a_second_server_on_a_taken_port_is_refused() -> None:
    """Two servers never share a port silently."""
    first, second = build_server(ServerSettings(name="first")), build_server(ServerSettings(name="second"))
    endpoint = bind(first, LOOPBACK)
    await first.start()

    with pytest.raises(PortTaken, match=f"127.0.0.1:{endpoint.port}"):
        bind(second, endpoint)

    await first.stop(0)
    await second.stop(0)


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
        async with grpc.aio.insecure_channel(f"127.0.0.1:{stub.endpoint.port}", options=options) as channel:
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
    assert "DecodeError" not in repr(caught.value)
    assert answer.responses[0].name == "x"


async def test_health_is_reported_per_service_and_for_all() -> None:
    """Health answers under the empty name and under each service's own."""
    server = build_server(ServerSettings(name="health"))
    health = RoleHealth([SERVICE])
    health.attach(server)
    endpoint = bind(server, LOOPBACK)
    await server.start()
    async with open_channel(endpoint) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        await health.set_serving(True)
        serving_now = [
            (await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)).status for name in ("", SERVICE)
        ]
        await health.set_serving(False)
        stopping = (await stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=5)).status
    await server.stop(0)

    assert serving_now == [health_pb2.HealthCheckResponse.SERVING] * 2
    assert stopping == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_reflection_lists_the_roles_service() -> None:
    """grpcurl can list what is served."""
    server = build_server(ServerSettings(name="reflection"))
    RoleHealth([SERVICE]).attach(server)
    endpoint = bind(server, LOOPBACK)
    await server.start()
    async with open_channel(endpoint) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        stream = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answer = await stream.read()
    await server.stop(0)

    assert SERVICE in [service.name for service in answer.list_services_response.service]


@pytest.mark.parametrize(("symbol", "is_found"), [("Produce", True), ("Brew", False), ("", False)])
async def test_reflection_describes_a_method(symbol: str, is_found: bool) -> None:
    """`grpcurl describe` finds a method by its full name, and reports when there is none."""
    server = build_server(ServerSettings(name="reflection"))
    RoleHealth([SERVICE]).attach(server)
    endpoint = bind(server, LOOPBACK)
    await server.start()
    async with open_channel(endpoint) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol=f"{SERVICE}.{symbol}")
        answer = await stub.ServerReflectionInfo(iter([asked])).read()
    await server.stop(0)

    assert answer.HasField("file_descriptor_response") is is_found
    assert answer.HasField("error_response") is not is_found


async def test_an_internal_port_welcomes_frequent_pings() -> None:
    """Both ends are configured: pings every 100 ms without a call do not lead to too_many_pings."""
    keepalive = Keepalive(ping_every_ms=100, ping_timeout_ms=1_000)
    server = build_server(ServerSettings(name="pings", internal_keepalive=keepalive))
    health = RoleHealth([SERVICE])
    health.attach(server)
    endpoint = bind(server, LOOPBACK)
    await server.start()
    await health.set_serving(True)
    async with open_channel(endpoint, keepalive=keepalive) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
        first = await watch.read()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.read(), 1.2)
    await server.stop(0)

    assert first.status == health_pb2.HealthCheckResponse.SERVING


def _frame(kind: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2 on the connection itself."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, 0)) + bytes(4) + payload


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4)
_PING = _frame(6, b"12345678")


@pytest.mark.parametrize("keepalive", [None, Keepalive()], ids=["clients", "internal"])
async def test_a_flood_of_pings_is_cut_off(keepalive: Keepalive | None) -> None:
    """On both ports: a connection that sends nothing but pings is ended with too_many_pings."""
    server = build_server(ServerSettings(name="pings", internal_keepalive=keepalive))
    endpoint = bind(server, LOOPBACK)
    await server.start()
    reader, writer = await asyncio.open_connection(*endpoint)
    writer.write(_PREFACE)
    said = b""
    async with asyncio.timeout(10):
        while b"too_many_pings" not in said:
            with contextlib.suppress(ConnectionError):
                writer.write(_PING * 100)
                await writer.drain()
            # Each accepted ping gets an acknowledgement.
            received = await reader.read(1 << 16)
            assert received, "the connection ended without a word"
            said = said[-100:] + received
    writer.close()
    await server.stop(0)


async def test_a_connection_that_says_nothing_is_ended() -> None:
    """A silent connection is ended after a time limit, and frees its slot."""
    server = build_server(ServerSettings(name="silent", handshake_ms=100))
    endpoint = bind(server, LOOPBACK)
    await server.start()
    reader, writer = await asyncio.open_connection(*endpoint)
    async with asyncio.timeout(10):
        said = await reader.read()
    writer.close()
    await server.stop(0)

    assert b"handshake timeout" in said
