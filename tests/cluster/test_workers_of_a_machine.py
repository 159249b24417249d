"""`--workers` for real: one supervisor per machine, each with two data nodes below it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import psutil
from running_cluster import CONTROLLER_SETTINGS, NODE_SETTINGS

from strandline.cli.local.local_cluster import LocalCluster, Plan, flags
from strandline.cli.local.processes import read_address
from strandline.client import Admin
from strandline.runtime.exit_codes import ExitCode

START_S = 30
MACHINES, WORKERS = 3, 2


@asynccontextmanager
async def controller(directory: Path, **settings: str) -> AsyncIterator[str]:
    """The address of a controller without nodes of its own."""
    own = CONTROLLER_SETTINGS | settings
    cluster = LocalCluster(Plan(directory=directory, nodes=0, controller_settings=own))
    try:
        await cluster.start_controller()
        yield cluster.bootstrap
    finally:
        cluster.kill()


@contextmanager
def machine(bootstrap: str, directory: Path, first_id: int, rack: str) -> Iterator[subprocess.Popen[str]]:
    """The supervisor of one machine's workers, and all of them ended at the end."""
    settings = {"node_id": str(first_id), "data_dir": str(directory), "controllers": bootstrap, "rack": rack}
    words = flags(settings | NODE_SETTINGS | {"workers": str(WORKERS)})
    command = [sys.executable, "-m", "strandline.node", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as supervisor:
        try:
            yield supervisor
        finally:
            if supervisor.poll() is None:
                supervisor.terminate()


async def workers_of(supervisor: subprocess.Popen[str], directory: Path) -> list[psutil.Process]:
    """The workers below a supervisor, in order, once each serves."""
    async with asyncio.timeout(START_S):
        while True:
            addresses = [read_address(directory / f"worker-{number}") for number in range(WORKERS)]
            below = {child.pid: child for child in psutil.Process(supervisor.pid).children()}
            found = [below[address.pid] for address in addresses if address is not None and address.pid in below]
            if len(found) == WORKERS:
                return found
            await asyncio.sleep(0.05)


async def all_ended(workers: list[psutil.Process]) -> bool:
    """Whether all of them end before the time to start is over."""
    _, alive = await asyncio.to_thread(psutil.wait_procs, workers, START_S)
    return not alive


async def test_replicas_of_a_partition_are_on_different_machines(tmp_path: Path) -> None:
    """Three machines with two workers each hold every partition of three replicas on three machines, and each worker
    leads some."""
    async with controller(tmp_path) as bootstrap:
        with ExitStack() as running:
            for number in range(MACHINES):
                directory = tmp_path / f"m{number}"
                own = machine(bootstrap, directory, 10 * (number + 1), f"m{number}")
                await workers_of(running.enter_context(own), directory)
            async with Admin(bootstrap) as admin:
                await admin.create_topic("spread", partitions=12, replication_factor=3)
                (topic,) = await admin.describe_topics(["spread"])
                racks = {node.node_id: node.rack for node in (await admin.metadata()).nodes}

    assert sorted(racks) == [10, 11, 20, 21, 30, 31]
    for partition in topic.partitions:
        assert {racks[node_id] for node_id in partition.replicas} == {"m0", "m1", "m2"}
    assert {partition.replicas[0] for partition in topic.partitions} == set(racks)


async def test_a_signal_ends_all_workers_in_good_order(tmp_path: Path) -> None:
    """SIGTERM to the supervisor is a clean stop of every worker, and its exit code is 0."""
    async with controller(tmp_path) as bootstrap:
        with machine(bootstrap, tmp_path / "m", 1, "m") as supervisor:
            workers = await workers_of(supervisor, tmp_path / "m")
            supervisor.terminate()
            code = await asyncio.to_thread(supervisor.wait, START_S)

    assert code == ExitCode.CLEAN
    assert await all_ended(workers)
    assert [(tmp_path / "m" / f"worker-{number}" / "clean-shutdown").exists() for number in range(WORKERS)] == [
        True
    ] * 2


async def test_the_end_of_one_worker_is_the_end_of_all(tmp_path: Path) -> None:
    """A worker that is killed ends its neighbour in good order; the supervisor names it and has its code, 128 + 9."""
    async with controller(tmp_path) as bootstrap:
        with machine(bootstrap, tmp_path / "m", 1, "m") as supervisor:
            workers = await workers_of(supervisor, tmp_path / "m")
            workers[1].kill()
            _, said = await asyncio.to_thread(supervisor.communicate, None, START_S)

    assert supervisor.returncode == 128 + signal.SIGKILL
    assert "worker-1 (node 2) ended with code 137" in said
    assert await all_ended(workers)
    assert (tmp_path / "m" / "worker-0" / "clean-shutdown").exists()


async def test_no_worker_outlives_its_supervisor(tmp_path: Path) -> None:
    """`kill -9` of the supervisor ends its workers, in good order."""
    async with controller(tmp_path) as bootstrap:
        with machine(bootstrap, tmp_path / "m", 1, "m") as supervisor:
            workers = await workers_of(supervisor, tmp_path / "m")
            os.kill(supervisor.pid, signal.SIGKILL)

            assert await all_ended(workers)
    assert (tmp_path / "m" / "worker-0" / "clean-shutdown").exists()


async def test_one_worker_that_cannot_start_ends_all(tmp_path: Path) -> None:
    """The exit code is that of the worker that could not start, here for a port that is taken."""
    async with controller(tmp_path) as bootstrap:
        taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        settings = {"node_id": "1", "data_dir": str(tmp_path / "m"), "controllers": bootstrap, "rack": "m"}
        words = flags(settings | {"workers": "2", "bind": f"127.0.0.1:{port - 1}"})
        command = [sys.executable, "-m", "strandline.node", *words]
        async with taken:
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=START_S, check=False
            )

    assert done.returncode == ExitCode.PORT_TAKEN
    assert "worker-1 (node 2) ended with code 17" in done.stderr
