"""`strandline up`: starts all, reports what dies, restarts on request, stops all on a signal."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from pathlib import Path

import pytest

from strandline.cli.failures import CommandFailed
from strandline.cli.local import up
from strandline.cli.local.local_cluster import LocalCluster, Plan, Ports
from strandline.node.settings import ReplicaSettings
from strandline.runtime.settings import parse_flags

DUMMY = str(Path(__file__).with_name("dummy_service.py"))


def dummy_cluster(directory: Path, **node_settings: str) -> LocalCluster:
    """Two nodes and a controller, all dummies."""
    return LocalCluster(
        Plan(
            directory=directory,
            nodes=2,
            node_settings=node_settings,
            controller_module=(DUMMY,),
            replica_module=(DUMMY,),
        )
    )


async def until(said: str, capture: pytest.CaptureFixture[str], seen: list[str]) -> None:
    """Waits until the command has printed ``said``; the output is collected in ``seen``."""
    async with asyncio.timeout(10):
        while said not in "".join(seen):
            await asyncio.sleep(0.02)
            out, err = capture.readouterr()
            seen.append(out + err)


async def test_up_serves_until_a_signal_and_stops_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`up` prints the endpoints and the bootstrap line, and SIGTERM ends every process."""
    cluster, seen = dummy_cluster(tmp_path), list[str]()
    task = asyncio.create_task(up.run(cluster, restart=False))
    await until("Ctrl-C stops everything", capsys, seen)
    os.kill(os.getpid(), signal.SIGTERM)
    await task

    assert f"export STRANDLINE_BOOTSTRAP={cluster.bootstrap_with_nodes}\n" in "".join(seen)
    assert not any(service.running for service in cluster.services)


def test_the_words_that_start_a_node_again(tmp_path: Path) -> None:
    """What `up` prints for a node that ended starts the same node, with its directory and its addresses."""
    cluster = LocalCluster(Plan(directory=tmp_path, nodes=1))
    cluster._remember(Ports(controller="127.0.0.1:9", clients={1: "127.0.0.1:7"}, internals={1: "127.0.0.1:8"}))
    node = cluster.nodes[1]
    node.command = cluster._node_command(1)
    said = up._by_hand(node)
    flags, _ = parse_flags(ReplicaSettings, "strandline replica", shlex.split(said.partition("replica ")[2]))

    assert said.startswith("start it again with: strandline replica --node-id 1 ")
    assert (flags["data_dir"], flags["controllers"]) == (str(tmp_path / "node-1"), "127.0.0.1:9")
    assert (flags["bind"], flags["internal_bind"]) == ("127.0.0.1:7", "127.0.0.1:8")


async def test_a_dead_node_is_reported_once_and_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node that ends by itself is named with how it ended; the others continue."""
    cluster, seen = dummy_cluster(tmp_path), list[str]()
    task = asyncio.create_task(up.run(cluster, restart=False))
    await until("Ctrl-C stops everything", capsys, seen)
    os.kill(cluster.nodes[1].pid or 0, signal.SIGKILL)
    await until("the others go on without node-1", capsys, seen)
    survivors = [cluster.controller.running, cluster.nodes[2].running]
    os.kill(os.getpid(), signal.SIGINT)
    await task

    assert survivors == [True, True]
    assert "".join(seen).count("node-1 was ended by SIGKILL") == 1


async def test_restart_brings_a_dead_node_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --restart a node that ended by itself is started again at its old address."""
    cluster, seen = dummy_cluster(tmp_path), list[str]()
    task = asyncio.create_task(up.run(cluster, restart=True))
    await until("Ctrl-C stops everything", capsys, seen)
    os.kill(cluster.nodes[2].pid or 0, signal.SIGKILL)
    await until("node-2 serves again at", capsys, seen)
    os.kill(os.getpid(), signal.SIGINT)
    await task

    assert not any(service.running for service in cluster.services)


async def test_a_node_that_cannot_start_ends_the_command(tmp_path: Path) -> None:
    """When a process ends before it serves, `up` stops the rest and fails with that process's last lines."""
    cluster = dummy_cluster(tmp_path, misbehave="die")

    with pytest.raises(CommandFailed, match="exit code 74: the disk is full"):
        await up.run(cluster, restart=False)

    assert not any(service.running for service in cluster.services)
