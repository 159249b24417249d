"""Cases 1 and 8: replicas and a controller start from the image, replicate, and do so with certificates."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import grpc
import played
import pytest
from container_case import case, everybody, serving
from container_cluster import CONTROLLER, NODES, ContainerCluster, name_of
from docker.models.containers import ExecResult
from played import Played
from running_cluster import CALL_S, Probe, until
from testcontainers.core.container import DockerContainer

from strandline.core.errors import ErrorCode
from strandline.rpc.channels import open_channel, parse_endpoint
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import open_tls
from strandline.v1 import controller_service_pb2 as controller_pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]
_COMMAND_S = 60
_USER = 10001


async def _command(cluster: ContainerCluster, *words: str) -> bytes:
    """The output of the command line about the cluster."""
    command = [sys.executable, "-m", "strandline.cli", *words, "--bootstrap", cluster.bootstrap]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(_COMMAND_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, f"strandline {' '.join(words)} ended with {process.returncode}"
    return said


async def test_three_replicas_come_up_and_replicate(cluster: ContainerCluster, tmp_path: Path) -> None:
    """Records produced with acks=all are read by every consumer, and describe shows three replicas in sync."""
    async with case(cluster, "come-up", tmp_path) as run:
        reported = json.loads(await _command(cluster, "topic", "describe", run.load.strict, "-o", "json"))
        records = await run.settle()

    in_sync = [sorted(partition["isr"]) for partition in reported]
    assert in_sync == [list(NODES)] * 3
    assert records >= 30


async def test_a_stopped_leader_hands_over_first(cluster: ContainerCluster, tmp_path: Path) -> None:
    """SIGTERM, the image's stop signal, drains: leadership has moved when the process ends, with 0.

    Records in flight at that time had not been committed, and were not acknowledged: no committed record is cut.
    """
    async with case(cluster, "drain", tmp_path) as run:
        leader = await run.probe.leader(run.load.strict)
        code = await run.do(cluster.stop, leader)
        now = await run.probe.partition(run.load.strict)
        await run.load.acked(5)
        await run.do(cluster.start_again, leader)
        await run.settle()
        cuts = run.events("TRUNCATION")
        reasons = {row["reason"] for row in run.events("LEADER_CHANGE") if row.get("old_leader") == leader}

    assert code == 0
    assert now.leader_id not in (leader, -1)
    assert reasons == {"controlled_shutdown"}
    assert [row for row in cuts if row["committed_cut"]] == []


def test_processes_are_not_root_and_write_nothing_but_their_volume(cluster: ContainerCluster) -> None:
    """Each container runs as the image's user, without a capability, on a root file system that it cannot write."""
    for node_id in (CONTROLLER, *NODES):
        container = cluster.container(node_id)
        fields = _status(container.exec_run(["cat", "/proc/1/status"]))

        assert fields["Uid"].split() == [str(_USER)] * 4
        assert int(fields["CapPrm"], 16) == 0
        assert container.exec_run(["touch", "/tmp/x"]).exit_code != 0


async def test_a_container_that_is_stopped_early_ends_at_once(image: str) -> None:
    """SIGTERM ends a command that has not installed its handler yet, also as the first process of its container."""
    container = DockerContainer(image, command=["topic", "list", "-b", "127.0.0.1:1"], read_only=True)
    try:
        await asyncio.to_thread(container.start)
        inside = container.get_wrapped_container()

        async def look() -> bool:
            fields = _status(await asyncio.to_thread(inside.exec_run, ["cat", "/proc/1/status"]))
            return bool(int(fields.get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1)

        await until(look, "the process has begun")
        await asyncio.to_thread(inside.kill, "SIGTERM")
        ended = await asyncio.to_thread(inside.wait, timeout=_COMMAND_S)
    finally:
        await asyncio.to_thread(container.stop)

    assert ended["StatusCode"] == 128 + signal.SIGTERM


def _status(answer: ExecResult) -> dict[str, str]:
    """The lines of /proc/PID/status, as `cat` printed them."""
    return dict(line.split(":\t", 1) for line in answer.output.decode().splitlines() if ":\t" in line)


def test_images_say_what_they_are(image: str) -> None:
    """Labels with the names that registries and scanners use; the stop signal and the entry point without a shell."""
    client = docker.from_env()
    try:
        config = client.images.get(image).attrs["Config"]
    finally:
        client.close()

    assert config["Labels"]["org.opencontainers.image.version"] == image.rpartition(":")[2]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Entrypoint"] == ["strandline"]
    assert config["User"] == f"{_USER}:{_USER}"


# Case 8: the same with certificates, and clients without one, or with another's.


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
