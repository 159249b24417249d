"""What every server reports of itself: health and reflection; and that a stream which ends is no alarm."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from running_cluster import CALL_S

from strandline.cli.local.local_cluster import LocalCluster
from strandline.core.messages import Endpoint
from strandline.rpc.server import ServerSettings, bind, build_server
from strandline.v1 import leader_service_pb2 as pb
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
