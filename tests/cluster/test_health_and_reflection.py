"""Every server reports whether it serves, and what: health and reflection on every port."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from running_cluster import CALL_S

from strandline.cli.local.local_cluster import LocalCluster

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
