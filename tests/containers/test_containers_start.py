"""Case 1: three replicas and a controller from the project's image start, replicate, and stop cleanly."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import docker
import pytest
from container_case import case
from container_cluster import CONTROLLER, NODES, ContainerCluster
from docker.models.containers import ExecResult
from running_cluster import until
from testcontainers.core.container import DockerContainer

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
