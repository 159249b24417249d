"""`strandline up --tls` with real processes: roles, certificates renewed while running, a node that returns."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import serial_in, shown_serial
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import Admin, sync
from strandline.client.cluster.metadata import DEFAULT_TIMEOUT_MS
from strandline.rpc.channels import parse_endpoint
from strandline.rpc.tls import TlsFiles

pytestmark = pytest.mark.cluster

DEADLINE_S = 30.0
_SETTINGS = {"session_timeout_ms": "1500", "heartbeat_interval_ms": "250"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes and a controller with certificates of their own authority."""
    local = LocalCluster(
        Plan(
            directory=tmp_path_factory.mktemp("tls"),
            nodes=2,
            controller_settings=_SETTINGS,
            node_settings={"low_space_bytes": "0"},
            tls=True,
        )
    )
    try:
        asyncio.run(local.start())
        yield local
        ends = asyncio.run(local.stop())
        assert [end.sentence for end in ends if end.code != 0] == []
        # Whatever was rejected meanwhile, no process wrote an alarm line.
        assert [line for line in _output(local) if "Traceback" in line or '"level": "error"' in line] == []
    finally:
        local.kill()


def _output(cluster: LocalCluster) -> list[str]:
    """All processes' output."""
    return [line for service in cluster.services for line in service.output.read_text(errors="replace").splitlines()]


def _run(cluster: LocalCluster, holder: str | None, *words: str) -> tuple[int, str]:
    """Run a command as the holder of one of the certificates, or of none."""
    tls = cluster.client_tls(holder) if holder else {}
    variables = {f"STRANDLINE_{name.upper()}": str(value) for name, value in tls.items()}
    result = CliRunner().invoke(app, [*words, "--bootstrap", cluster.bootstrap], env=variables)
    return result.exit_code, result.output


def _files(cluster: LocalCluster, holder: str) -> TlsFiles:
    tls = cluster.client_tls(holder)
    return TlsFiles(cert=Path(tls["tls_cert"]), key=Path(tls["tls_key"]), ca=Path(tls["tls_ca"]))


def test_clients_write_and_read_and_replicas_agree(cluster: LocalCluster, tmp_path: Path) -> None:
    """Records go through two nodes that authenticate each other, and every copy is the same."""
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    _run(cluster, "admin", "topic", "create", "records", "--replication-factor", "2")
    produced = _run(cluster, "client", "produce", "records", str(lines), "--quiet")
    consumed = _run(cluster, "client", "consume", "records", "--from-beginning", "--stop-at-end", "--quiet")
    verified = _run(cluster, "admin", "log", "verify", "--topic", "records")

    assert produced == (0, "")
    assert consumed == (0, "a\nb\nc\n")
    assert verified[0] == 0, verified[1]


def test_a_replicas_certificate_is_no_clients(cluster: LocalCluster) -> None:
    """A stolen node's certificate cannot even list the topics, and its user gets the error at once, by name."""
    begun = time.monotonic()
    code, out = _run(cluster, "node-1", "topic", "list")

    assert code == 1
    assert "CLUSTER_AUTHORIZATION_FAILED: replica 1 may not call GetMetadata" in out
    assert time.monotonic() - begun < DEFAULT_TIMEOUT_MS / 1000


def test_clients_take_their_certificate_as_bytes(cluster: LocalCluster) -> None:
    """PEM in bytes is as good as the paths of files: records are written and read, also by the blocking clients."""
    pem = {name: Path(path).read_bytes() for name, path in cluster.client_tls("admin").items()}
    with sync.Admin(cluster.bootstrap, **pem) as admin:
        admin.create_topic("by-bytes", replication_factor=2)
    with sync.Producer(cluster.bootstrap, **pem) as producer:
        producer.send_and_wait("by-bytes", b"x")
    with sync.Consumer(cluster.bootstrap, stop_at_end=True, **pem) as consumer:
        consumer.assign("by-bytes")
        assert [record.value for record in consumer] == [b"x"]


def test_renewed_certificates_are_taken_up_without_a_restart(cluster: LocalCluster, tmp_path: Path) -> None:
    """After `strandline certs renew` every port shows the new one, and a node that was killed joins with it."""
    lines = tmp_path / "lines"
    lines.write_text("d\n")
    _run(cluster, "admin", "topic", "create", "renewed", "--replication-factor", "2")
    addresses = {"controller": cluster.bootstrap}
    for node_id in cluster.node_ids:
        address = cluster.address(node_id)
        addresses[f"node-{node_id}"] = address.client
    before = {holder: serial_in(_files(cluster, holder)) for holder in addresses}
    pids = [service.pid for service in cluster.services]

    renewed = CliRunner().invoke(app, ["certs", "renew", str(cluster.directory / "certs"), "--valid-for", "30d"])
    assert renewed.exit_code == 0, renewed.output

    for holder, address in addresses.items():
        assert serial_in(_files(cluster, holder)) != before[holder]
        _until_shown(cluster, holder, address)
    assert [service.pid for service in cluster.services] == pids

    asyncio.run(_kill_and_restart(cluster, 2))
    assert _run(cluster, "client", "produce", "renewed", str(lines), "--quiet") == (0, "")


async def _kill_and_restart(cluster: LocalCluster, node_id: int) -> None:
    cluster.kill_node(node_id)
    await cluster.start_node(node_id)
    async with Admin(cluster.bootstrap, **cluster.client_tls()) as admin:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            topics = await admin.describe_topics()
            if topics and all(len(part.isr) == 2 for topic in topics for part in topic.partitions):
                return
            await asyncio.sleep(0.1)
    raise AssertionError(f"node {node_id} did not come back into every ISR")


def _until_shown(cluster: LocalCluster, holder: str, address: str) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if shown_serial(parse_endpoint(address), _files(cluster, "client")) == serial_in(_files(cluster, holder)):
            return
        pause.wait(0.1)
    raise AssertionError(f"{holder} never showed its new certificate")
