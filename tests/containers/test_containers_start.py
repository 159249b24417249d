"""Case 8: the same with certificates, and clients without one, or with another's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import played
import pytest
from container_case import everybody, serving
from container_cluster import CONTROLLER, NODES, ContainerCluster, name_of
from played import Played
from running_cluster import CALL_S, Probe

from strandline.core.errors import ErrorCode
from strandline.rpc.channels import open_channel, parse_endpoint
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import open_tls
from strandline.v1 import controller_service_pb2 as controller_pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]

_END_S = 60


@pytest.fixture(scope="module")
def secured(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerCluster]:
    """A cluster of its own, with certificates that the command line made."""
    directory = tmp_path_factory.mktemp("secured")
    certificates = _certificates(directory / "certs")
    made = ContainerCluster(image, directory / "cluster", certificates=certificates)
    try:
        made.start()
        asyncio.run(serving(made))
        yield made
        alarms = made.alarms()
    finally:
        made.remove()

    assert alarms == []


def _certificates(directory: Path) -> Path:
    """For a controller and three nodes by the names that they have on the network of the nodes."""
    command = [sys.executable, "-m", "strandline.cli", "certs", "new", str(directory), "--nodes", str(len(NODES))]
    hosts = ["--node-host", "node-{id}.replication", "--controller-host", f"{name_of(CONTROLLER)}.replication"]
    subprocess.run([*command, *hosts], check=True, capture_output=True, timeout=60)
    # The user inside differs from the user of the test, and the machine is a test machine.
    for key in directory.glob("*/tls.key"):
        key.chmod(0o644)
    return directory


@pytest.fixture(scope="module")
def secured_failover(secured: ContainerCluster, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Case 2 with certificates."""
    return asyncio.run(played.killed_leader(secured, tmp_path_factory.mktemp("secured-failover")))


def test_with_certificates_a_killed_leader_is_replaced_just_so(secured_failover: Played) -> None:
    """With certificates the history, the shrinks, expands and truncation, and the time are the same."""
    assert max(secured_failover.failovers.values()) <= secured_failover.limit_s
    assert secured_failover.truncated > 0
    assert secured_failover.changes == secured_failover.removals
    assert secured_failover.expands == secured_failover.removals.total()


async def test_who_has_no_certificate_gets_no_answer(secured: ContainerCluster) -> None:
    """Neither plain text nor a TLS client without a certificate works; one with a certificate does at the same port."""
    ca = _bytes(secured.client_tls("client")["tls_ca"])
    node = secured.address(1)
    assert node is not None
    for address in (secured.bootstrap, node.client):
        plain = grpc.aio.insecure_channel(address)
        anonymous = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca))
        for channel in (plain, anonymous):
            async with channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ControllerServiceStub(channel).GetMetadata(controller_pb.GetMetadataRequest(), timeout=CALL_S)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    async with Probe(secured, "client") as known:  # type: ignore[arg-type]
        await everybody(known)


async def test_a_replica_cannot_speak_for_another(secured: ContainerCluster) -> None:
    """No client with replica 2's certificate can get node 3 fenced."""
    async with Probe(secured) as probe:  # type: ignore[arg-type]
        await everybody(probe)
        before = await probe.node(3)
        request = controller_pb.HeartbeatRequest(
            node_id=3, node_epoch=before.node_epoch, cluster_id=(await probe.metadata()).cluster_id, want_fence=True
        )
        tls = open_tls(**secured.client_tls("node-2"))
        async with open_channel(parse_endpoint(secured.bootstrap), tls=tls) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ControllerServiceStub(channel).Heartbeat(request, timeout=CALL_S)
        after = await probe.node(3)

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert refusal_of(caught.value).code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (after.fenced, after.node_epoch) == (False, before.node_epoch)


async def test_a_replica_with_anothers_certificate_does_not_start(secured: ContainerCluster) -> None:
    """One line has the certificate's holder and the expected one; the existing nodes are not affected."""
    async with Probe(secured) as probe:  # type: ignore[arg-type]
        await everybody(probe)
        before = {node.node_id: node.node_epoch for node in (await probe.metadata()).nodes}
        await asyncio.to_thread(secured.stop, 3)
        impostor = secured.impostor(3, "node-2")
        try:
            await asyncio.to_thread(impostor.start)
            ended = await asyncio.to_thread(impostor.get_wrapped_container().wait, timeout=_END_S)
            said = impostor.get_wrapped_container().logs().decode().strip().splitlines()
        finally:
            await asyncio.to_thread(impostor.stop)
            await asyncio.to_thread(secured.start_again, 3)
        await everybody(probe)
        after = {node.node_id: node.node_epoch for node in (await probe.metadata()).nodes}

    assert ended["StatusCode"] != 0
    assert "/replica/2" in said[-1] and "/replica/3" in said[-1]
    assert "Traceback" not in "".join(said)
    assert (after[1], after[2]) == (before[1], before[2])


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()
