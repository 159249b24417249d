"""`strandline node shutdown --self`: whose handover it requests, how long it waits, and when there is nothing to do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.ask.node import Incarnation, leave, running_node
from strandline.cli.failures import CommandFailed
from strandline.runtime.process import started_ticks
from strandline.v1 import controller_service_pb2 as pb, controller_service_pb2_grpc as pb_grpc, error_pb2

NODE, EPOCH = 2, 77


def endpoint_of_this_process(directory: Path, **changed: Any) -> None:
    """The endpoint file of a node that is this test process."""
    own = {"pid": os.getpid(), "started_ticks": started_ticks(os.getpid()), "node_id": NODE, "node_epoch": EPOCH}
    (directory / "endpoint.json").write_text(json.dumps(own | changed))


class Controller(pb_grpc.ControllerServiceServicer):
    """Answers ShutdownNode with the partitions that are left, one answer after the other, the last again and again."""

    def __init__(self, *answers: int | str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, int]] = []

    async def ShutdownNode(self, request: pb.ShutdownNodeRequest, context: Any) -> pb.ShutdownNodeResponse:  # noqa: N802
        """The next answer."""
        self.asked.append((request.node_id, request.node_epoch))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        message = pb.ShutdownNodeResponse()
        if isinstance(answer, str):
            message.error_code = error_pb2.ErrorCode.Value(f"ERROR_CODE_{answer}")
            message.error_message = answer
        elif answer:
            message.remaining_partitions.add(topic_id="t", partitions=range(answer))
        return message


@asynccontextmanager
async def serving(controller: Controller) -> AsyncIterator[str]:
    """The controller on a port of its own."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_ControllerServiceServicer_to_server(controller, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.fixture
def as_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the environment of a pod whose node is this process."""
    endpoint_of_this_process(tmp_path)

    def set_controllers(address: str) -> None:
        monkeypatch.setenv("STRANDLINE_NODE_ID", str(NODE))
        monkeypatch.setenv("STRANDLINE_DATA_DIR", str(tmp_path))
        monkeypatch.setenv("STRANDLINE_CONTROLLERS", address)

    return set_controllers


async def test_it_waits_until_the_node_leads_nothing(as_node: Callable[[str], None]) -> None:
    """The command repeats the request while partitions are left, each time for this very incarnation."""
    controller = Controller(2, 1, 0)
    async with serving(controller) as address:
        as_node(address)
        said = await leave(deadline_s=10)

    assert "leads nothing" in said
    assert controller.asked == [(NODE, EPOCH)] * 3


async def test_what_is_left_at_the_deadline_is_a_failure(as_node: Callable[[str], None]) -> None:
    """No other node is in sync: the command ends in time, reports that, and does not claim success."""
    controller = Controller(3)
    async with serving(controller) as address:
        as_node(address)
        with pytest.raises(CommandFailed, match="still leads 3 partitions"):
            await asyncio.wait_for(leave(deadline_s=0.5), 10)


@pytest.mark.parametrize("code", ["STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED"])
async def test_a_node_that_was_replaced_has_nothing_to_hand_over(code: str, as_node: Callable[[str], None]) -> None:
    """Another process registered under this id, or none ever did: that is not a failure."""
    controller = Controller(code)
    async with serving(controller) as address:
        as_node(address)
        said = await leave(deadline_s=10)

    assert "nothing to hand over" in said
    assert len(controller.asked) == 1


async def test_no_controller_is_a_failure_at_the_deadline(as_node: Callable[[str], None]) -> None:
    """Without a controller that could move leaders it retries until the deadline and reports the errors."""
    as_node("127.0.0.1:1")

    with pytest.raises(CommandFailed, match="no controller accepted the shutdown of node 2"):
        await asyncio.wait_for(leave(deadline_s=0.5), 20)


async def test_a_setting_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's settings come from its environment; a missing one is named."""
    for name in [name for name in os.environ if name.startswith("STRANDLINE_")]:
        monkeypatch.delenv(name)

    with pytest.raises(CommandFailed, match="node_id") as caught:
        await leave(deadline_s=1)
    assert caught.value.exit_code == 2


def test_the_process_that_wrote_the_endpoint_is_the_one_that_is_meant(tmp_path: Path) -> None:
    """Process id and start agree: this is the node, with the epoch it registered with."""
    endpoint_of_this_process(tmp_path)

    assert running_node(tmp_path) == Incarnation(node_id=NODE, node_epoch=EPOCH)


@pytest.mark.parametrize("changed", [{"started_ticks": 1}, {"pid": 2**22 + 1}, {"pid": "one"}, {"pid": None}])
def test_an_endpoint_of_another_process_is_nobody(tmp_path: Path, changed: dict[str, Any]) -> None:
    """A later process 1 took the directory over, the writer is gone, or its file is damaged: nothing is done for it."""
    endpoint_of_this_process(tmp_path, **changed)

    assert running_node(tmp_path) is None


def test_a_directory_without_an_endpoint_is_nobody(tmp_path: Path) -> None:
    """A node that never served has nothing to hand over."""
    assert running_node(tmp_path) is None


def test_a_process_keeps_its_start(tmp_path: Path) -> None:
    """Called twice, the kernel returns the same; for a process that does not exist it returns nothing."""
    assert started_ticks(os.getpid()) == started_ticks(os.getpid())
    assert started_ticks(2**22 + 1) is None


def test_self_and_a_node_exclude_each_other() -> None:
    """`node shutdown` needs one node: named, or itself; neither or both is wrong usage."""
    for words in (["node", "shutdown"], ["node", "shutdown", "1", "--self"]):
        result = CliRunner().invoke(app, words, prog_name="strandline")
        assert result.exit_code == 2
        assert "--self" in result.stderr


def test_the_command_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod whose node never served, the command ends with 0 and a sentence, so that the pod can go."""
    monkeypatch.setenv("STRANDLINE_NODE_ID", "1")
    monkeypatch.setenv("STRANDLINE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("STRANDLINE_CONTROLLERS", "127.0.0.1:1")
    result = CliRunner().invoke(app, ["node", "shutdown", "--self"], prog_name="strandline")

    assert result.exit_code == 0
    assert "nothing to hand over" in result.stdout
