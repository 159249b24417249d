"""What every server reports of itself: health, reflection, and failures without internal details."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from raw_records import error_info
from running_cluster import CALL_S

from strandline.cli.local.local_cluster import LocalCluster
from strandline.core.messages import Endpoint
from strandline.rpc.interceptors import RefusalInterceptor
from strandline.rpc.server import ServerSettings, bind, build_server
from strandline.v1 import controller_service_pb2 as controller_pb, leader_service_pb2 as pb
from strandline.v1.controller_service_pb2_grpc import (
    ControllerServiceServicer,
    ControllerServiceStub,
    add_ControllerServiceServicer_to_server,
)
from strandline.v1.leader_service_pb2_grpc import (
    LeaderServiceServicer,
    LeaderServiceStub,
    add_LeaderServiceServicer_to_server,
)

NODE_SERVICES = ["strandline.v1.LeaderService", "strandline.v1.FollowerService", "strandline.v1.MetadataService"]


SERVICES = {
    "controller": ["strandline.v1.ControllerService", "strandline.v1.MetadataService"],
    "clients": NODE_SERVICES,
    "internal": NODE_SERVICES,
}


def address_of(cluster: LocalCluster, port: str) -> str:
    """The address of this kind of port."""
    if port == "controller":
        return cluster.bootstrap
    found = cluster.address(1)
    assert found is not None and found.internal is not None
    return found.client if port == "clients" else found.internal


@pytest.mark.parametrize("port", SERVICES)
def test_every_service_says_that_it_serves(cluster: LocalCluster, port: str) -> None:
    """Health answers SERVING for the process and for each of its services, NOT_FOUND for anything else."""
    with grpc.insecure_channel(address_of(cluster, port)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        said = [
            stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=CALL_S).status
            for name in ("", *SERVICES[port])
        ]
        with pytest.raises(grpc.RpcError) as raised:
            stub.Check(health_pb2.HealthCheckRequest(service="strandline.v1.Nothing"), timeout=CALL_S)

    assert set(said) == {health_pb2.HealthCheckResponse.SERVING}
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("port", SERVICES)
def test_every_server_describes_itself(cluster: LocalCluster, port: str) -> None:
    """Reflection lists the services, and returns the schema of each of their messages."""
    with grpc.insecure_channel(address_of(cluster, port)) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        listed = set(database.get_services())
        pool = DescriptorPool(database)
        methods = {name: len(pool.FindServiceByName(name).methods) for name in SERVICES[port]}

    assert {*SERVICES[port], "grpc.health.v1.Health"} <= listed
    assert all(count > 0 for count in methods.values())


# What a caller sees of an unexpected failure: that it happened, and where to look; no internal details.


SECRET = "/var/lib/strandline/secret: key 0xDEADBEEF"


class BrokenLeader(LeaderServiceServicer):
    """Fails in every way that is not a rejection, with a text that must not leave the server."""

    async def Produce(self, request: pb.ProduceRequest, context: Any) -> pb.ProduceResponse:  # noqa: N802
        raise ValueError(SECRET)

    async def ProduceStream(self, request: Any, context: Any) -> None:  # noqa: N802
        raise KeyError(SECRET)

    async def Fetch(self, request: pb.FetchRequest, context: Any) -> pb.FetchResponse:  # noqa: N802
        await asyncio.Event().wait()
        raise AssertionError("waits for ever")


class BrokenController(ControllerServiceServicer):
    """Fails in the middle of a server stream."""

    async def WatchMetadata(self, request: Any, context: Any) -> AsyncIterator[controller_pb.WatchMetadataResponse]:  # noqa: N802
        yield controller_pb.WatchMetadataResponse()
        raise OSError(SECRET)


async def call(server: grpc.aio.Server, method: str, *, timeout_s: float | None = 5.0) -> grpc.aio.AioRpcError:
    """The failure of one call to a server in this process."""
    add_LeaderServiceServicer_to_server(BrokenLeader(), server)
    add_ControllerServiceServicer_to_server(BrokenController(), server)
    endpoint = bind(server, Endpoint("127.0.0.1", 0))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{endpoint.port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await _one(channel, method, timeout_s)
    finally:
        await server.stop(0)
    return raised.value


async def _one(channel: grpc.aio.Channel, method: str, timeout_s: float | None) -> None:
    leader, controller = LeaderServiceStub(channel), ControllerServiceStub(channel)
    match method:
        case "Produce":
            await leader.Produce(pb.ProduceRequest(), timeout=timeout_s)
        case "Fetch":
            await leader.Fetch(pb.FetchRequest(), timeout=timeout_s)
        case "ProduceStream":
            await leader.ProduceStream(timeout=timeout_s).read()
        case "WatchMetadata":
            async for _ in controller.WatchMetadata(controller_pb.WatchMetadataRequest(), timeout=timeout_s):
                pass


@pytest.mark.parametrize("method", ["Produce", "ProduceStream", "WatchMetadata"])
async def test_an_unforeseen_failure_leaks_no_text(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The caller gets INTERNAL with a request id and nothing of the exception; the node's own log has both."""
    error = await call(build_server(ServerSettings(name="node-7")), method)
    info = error_info(error)
    seen = f"{error.details()} {info} {error.trailing_metadata()} {error.debug_error_string()}"
    logged = "".join(capsys.readouterr())

    assert (error.code(), info.reason) == (grpc.StatusCode.INTERNAL, "UNKNOWN_SERVER_ERROR")
    assert info.metadata["request_id"] == "node-7-1"
    assert "node-7-1" in (error.details() or "")
    assert [word for word in ("secret", "DEADBEEF", "Error:", "Traceback") if word in seen] == []
    assert "node-7-1" in logged
    assert "DEADBEEF" in logged


async def test_a_call_without_a_deadline_is_capped() -> None:
    """A unary call without a deadline ends at the server's cap, with the server's own time-out error."""
    server = grpc.aio.server(interceptors=[RefusalInterceptor("node-7", unary_cap_s=0.2)])
    began_s = time.monotonic()
    error = await call(server, "Fetch", timeout_s=None)

    assert (error.code(), error_info(error).reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "REQUEST_TIMED_OUT")
    assert 0.15 < time.monotonic() - began_s < 3.0


class TalkingLeader(LeaderServiceServicer):
    """Reads and writes on a stream for as long as it lives."""

    async def ProduceStream(self, _: Any, context: Any) -> None:  # noqa: N802
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write(context))
            while await context.read() is not grpc.aio.EOF:
                pass

    async def _write(self, context: Any) -> None:
        while True:
            await context.write(pb.ProduceStreamResponse())


@pytest.mark.parametrize("goes_away", ["the caller", "the server"])
async def test_a_stream_that_somebody_leaves_is_no_alarm(goes_away: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A caller that disconnects, or a server that stops, in the middle of a stream is normal, not an error."""
    server = build_server(ServerSettings(name="node-7"))
    add_LeaderServiceServicer_to_server(TalkingLeader(), server)
    endpoint = bind(server, Endpoint("127.0.0.1", 0))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{endpoint.port}") as channel:
        streams = [LeaderServiceStub(channel).ProduceStream(timeout=5.0) for _ in range(10)]
        for stream in streams:
            await stream.write(pb.ProduceStreamRequest())
            await stream.read()
        if goes_away == "the caller":
            for stream in streams:
                stream.cancel()
    await server.stop(0)

    assert "unexpected failure" not in "".join(capsys.readouterr())
