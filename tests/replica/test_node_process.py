"""A data node as a process: how it reports that it serves, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, batch, fetch, produce, values_of

from strandline.cli.ask.node import Incarnation, running_node
from strandline.core.types import NodeId, Truncation
from strandline.rpc.channels import open_channel, parse_endpoint, target
from strandline.rpc.convert.subscription import ImageWriter, image_from_bytes
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.process import started_ticks
from strandline.storage.directory import DataDirectory
from strandline.v1 import leader_service_pb2_grpc as pb_grpc

START_S = 20


class NodeProcess:
    """A child process, with its stderr output."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self.process = process
        self.directory = directory

    async def served(self) -> dict[str, Any]:
        """The content of its endpoint file, once it is this process's."""
        async with asyncio.timeout(START_S):
            while True:
                try:
                    written: dict[str, Any] = json.loads((self.directory / "endpoint.json").read_text())
                    if written["pid"] == self.process.pid:
                        return written
                except FileNotFoundError:
                    pass
                await asyncio.sleep(0.02)

    async def ended(self) -> tuple[int, str]:
        """Exit code and stderr."""
        _, lines = await asyncio.wait_for(self.process.communicate(), START_S)
        assert self.process.returncode is not None
        return self.process.returncode, lines.decode()


@asynccontextmanager
async def started(controller: ControllerStub, directory: Path, *flags: str) -> AsyncIterator[NodeProcess]:
    """A node's process, killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "strandline.node",
        *("--node-id", "1", "--data-dir", str(directory), "--controllers", target(controller.endpoint), *flags),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        yield NodeProcess(process, directory)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@asynccontextmanager
async def a_controller() -> AsyncIterator[ControllerStub]:
    """A served stub that gives node 1 one partition."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    await controller.start()
    try:
        yield controller
    finally:
        await controller.stop()


@asynccontextmanager
async def _stub(controller: ControllerStub, node: NodeProcess) -> AsyncIterator[Any]:
    """LeaderService of a process that knows its partition."""
    async with open_channel(parse_endpoint((await node.served())["client"])) as channel:
        await asyncio.wait_for(controller.known_by(1), 10)
        yield pb_grpc.LeaderServiceStub(channel)


async def test_sigterm_is_a_clean_stop(tmp_path: Path) -> None:
    """SIGTERM gives exit code 0, a clean-shutdown mark, and a controlled shutdown at the controller."""
    async with a_controller() as controller, started(controller, tmp_path / "n") as node:
        endpoint = await node.served()
        node.process.send_signal(signal.SIGTERM)
        code, _ = await node.ended()

    assert code == ExitCode.CLEAN
    assert endpoint["node_id"] == 1 and parse_endpoint(endpoint["internal"]).port
    assert (tmp_path / "n" / "clean-shutdown").exists()
    assert any(heartbeat.want_shut_down for heartbeat in controller.heartbeats)


async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """With durability=fsync an acknowledged record is there after kill -9 and a restart."""
    async with a_controller() as controller:
        async with started(controller, tmp_path / "n") as node:
            async with _stub(controller, node) as stub:
                answer = await stub.Produce(produce(batch("kept")), timeout=10)
            node.process.kill()
            await node.ended()
        controller.heartbeats.clear()
        async with started(controller, tmp_path / "n") as node, _stub(controller, node) as stub:
            read = await stub.Fetch(fetch(0), timeout=10)

    assert answer.responses[0].partition_responses[0].error_code == 0
    assert values_of(read) == ["kept"]


async def test_a_second_process_on_a_data_directory_is_refused(tmp_path: Path) -> None:
    """A second process ends with one clear line that names the holder and its own exit code; the first continues."""
    async with a_controller() as controller, started(controller, tmp_path / "n") as first:
        await first.served()
        async with started(controller, tmp_path / "n") as second:
            code, lines = await second.ended()
        still_runs = first.process.returncode is None

    assert code == ExitCode.DIRECTORY_IN_USE
    assert f"is used by process {first.process.pid}" in lines and lines.count("\n") == 1
    assert still_runs


async def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    """An address in use by another server is named, with a separate exit code."""
    async with a_controller() as controller:
        taken = target(controller.endpoint)
        async with started(controller, tmp_path / "n", "--bind", taken) as node:
            code, lines = await node.ended()

    assert code == ExitCode.PORT_TAKEN
    assert taken in lines.splitlines()[-1]


async def test_the_endpoint_names_the_process_and_its_epoch(tmp_path: Path) -> None:
    """A reader of the file can distinguish this process from any other, and name it to the controller."""
    async with a_controller() as controller, started(controller, tmp_path / "n") as node:
        written = await node.served()

        assert written["started_ticks"] == started_ticks(node.process.pid)
        assert running_node(tmp_path / "n") == Incarnation(node_id=1, node_epoch=written["node_epoch"])


async def test_a_directory_of_historic_rules_is_refused(tmp_path: Path) -> None:
    """Records written under a rule that loses acknowledged records are not served; the line has the remedy."""
    async with a_controller() as controller:
        async with started(controller, tmp_path / "n") as node, _stub(controller, node):
            node.process.send_signal(signal.SIGTERM)
            await node.ended()
        directory = DataDirectory.open(tmp_path / "n", node_id=NodeId(1))
        content = directory.checkpoints.metadata()
        image = image_from_bytes(content) if content is not None else None
        assert image is not None
        historic = replace(image, rules=replace(image.rules, truncation=Truncation.KIP_101))
        directory.checkpoints.save_metadata(ImageWriter().to_bytes(historic))
        directory.close(clean=True)
        async with started(controller, tmp_path / "n") as node:
            code, lines = await node.ended()

    assert code == ExitCode.REFUSED
    assert "truncation=kip-101" in lines and "copy the records into a new cluster" in lines


async def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    """A wrong setting ends with exit code 2 and its name."""
    async with a_controller() as controller, started(controller, tmp_path / "n", "--tune", "tick_ms=0") as node:
        code, lines = await node.ended()

    assert code == ExitCode.USAGE
    assert "tick_ms" in lines
