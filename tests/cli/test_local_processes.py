"""`strandline up` and the processes of one machine: when they serve, how they end, and what they may start."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.cli.failures import CommandFailed
from strandline.cli.local import up
from strandline.cli.local.local_cluster import LocalCluster, Plan, Ports, flags, write_ports
from strandline.cli.local.processes import Exit, Service, ServiceDied, last_line, read_address
from strandline.node.settings import ReplicaSettings
from strandline.runtime.settings import parse_flags

DUMMY = str(Path(__file__).with_name("dummy_service.py"))
SOON_MS = 10_000


def dummy(directory: Path, *words: str) -> Service:
    """A service process that is a dummy."""
    data = directory / "data"
    command = [sys.executable, DUMMY, "--data-dir", str(data), "--bind", "127.0.0.1:0", *words]
    return Service(name="dummy", command=command, directory=data, output=directory / "dummy.log")


async def serving(directory: Path, *words: str) -> Service:
    """The dummy, once it serves."""
    service = dummy(directory, *words)
    service.start()
    await service.serving(SOON_MS)
    return service


def dummy_cluster(directory: Path, nodes: int = 2, **node_settings: str) -> LocalCluster:
    """A local cluster whose roles are played by dummies."""
    plan = Plan(
        directory=directory,
        nodes=nodes,
        node_settings=node_settings,
        controller_module=(DUMMY,),
        replica_module=(DUMMY,),
    )
    return LocalCluster(plan)


async def test_serving_waits_for_the_endpoint_of_this_process(tmp_path: Path) -> None:
    """A service serves once the endpoint file names its own process id."""
    service = dummy(tmp_path)
    service.start()
    address = await service.serving(SOON_MS)
    await service.stop(SOON_MS)

    assert service.process is not None
    assert address.pid == service.process.pid
    assert address.client.startswith("127.0.0.1:")


async def test_death_before_serving_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """A process that ends before it serves is reported with its exit code and its last line."""
    service = dummy(tmp_path, "--misbehave", "die")
    service.start()

    with pytest.raises(ServiceDied, match=r"dummy ended with exit code 74: the disk is full"):
        await service.serving(SOON_MS)


async def test_a_silent_process_runs_into_the_deadline(tmp_path: Path) -> None:
    """A process that neither serves nor ends raises TimeoutError that names its output."""
    service = dummy(tmp_path, "--misbehave", "silent")
    service.start()

    with pytest.raises(TimeoutError, match=r"dummy\.log"):
        await service.serving(200)

    service.kill()


async def test_stop_kills_what_does_not_hear(tmp_path: Path) -> None:
    """A process that ignores SIGTERM is killed after its grace, and the result shows it."""
    service = await serving(tmp_path, "--misbehave", "deaf")
    end = await service.stop(200)

    assert end is not None and end.forced
    assert "did not stop in time" in end.sentence


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (0, "node-1 ended with exit code 0 (CLEAN)"),
        (77, "node-1 ended with exit code 77"),
        (-9, "node-1 was ended by SIGKILL"),
    ],
)
def test_an_end_is_told_by_its_code_or_its_signal(code: int, sentence: str) -> None:
    """Only a negative code is a signal's; an exit code has its name beside it where it is ours."""
    assert Exit(name="node-1", code=code).sentence == sentence


async def test_a_wished_end_is_no_news(tmp_path: Path) -> None:
    """Only a process that ended without a request counts as dead."""
    service = await serving(tmp_path)
    service.kill()

    assert service.found_dead() is None
    assert not service.running


async def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    """A second process on a directory whose first one lives is rejected and the first one is named."""
    first = dummy(tmp_path)
    first.start()
    address = await first.serving(SOON_MS)

    with pytest.raises(ServiceDied, match=f"in use by process {address.pid}"):
        dummy(tmp_path).start()

    await first.stop(SOON_MS)


async def test_a_cluster_keeps_its_ports_over_a_restart(tmp_path: Path) -> None:
    """The kernel chooses the ports once; a later start of the same directory uses them again."""
    first = dummy_cluster(tmp_path)
    await first.start(SOON_MS)
    before = [read_address(service.directory) for service in first.services]
    ends = await first.stop(SOON_MS)
    again = dummy_cluster(tmp_path)
    await again.start(SOON_MS)
    after = [read_address(service.directory) for service in again.services]
    await again.stop(SOON_MS)

    assert [end.code for end in ends] == [0, 0, 0]
    assert [(one.client, one.internal) for one in before if one] == [(one.client, one.internal) for one in after if one]
    assert first.bootstrap == again.bootstrap


async def test_a_killed_node_comes_back_where_it_was(tmp_path: Path) -> None:
    """kill -9 and a new start give a new process at the old address."""
    cluster = dummy_cluster(tmp_path)
    await cluster.start(SOON_MS)
    before = cluster.address(1)
    cluster.kill_node(1)
    after = await cluster.start_node(1, SOON_MS)
    await cluster.stop(SOON_MS)

    assert before is not None
    assert after.pid != before.pid
    assert after.client == before.client


def test_settings_become_flags() -> None:
    """A setting's name becomes a flag with dashes, in the given order."""
    assert flags({"session_timeout_ms": "1500", "bind": "a:1"}) == ["--session-timeout-ms", "1500", "--bind", "a:1"]


def test_workers_of_one_machine_have_one_rack(tmp_path: Path) -> None:
    """Two machines with two workers are four nodes in two racks, in order; an observer behind them is in none."""
    write_ports(tmp_path, Ports(controller="127.0.0.1:1"))
    cluster = LocalCluster(Plan(directory=tmp_path, nodes=2, workers=2, observers=1))
    commands = [cluster._node_command(node_id) for node_id in cluster.node_ids]
    racks = [words[words.index("--rack") + 1] if "--rack" in words else None for words in commands]

    assert racks == ["machine-1", "machine-1", "machine-2", "machine-2", None]
    assert [words[words.index("--roles") + 1] for words in commands] == ["leader,follower"] * 4 + ["follower"]


def test_last_line_skips_blank_lines(tmp_path: Path) -> None:
    """The last line is the last non-empty one; a missing file has none."""
    (tmp_path / "log").write_text("one\ntwo\n\n  \n")

    assert last_line(tmp_path / "log") == "two"
    assert last_line(tmp_path / "none") == ""


async def test_a_paused_process_can_be_stopped(tmp_path: Path) -> None:
    """A paused process (SIGSTOP) still receives SIGTERM and ends cleanly."""
    service = await serving(tmp_path)
    service.pause()
    end = await service.stop(SOON_MS)

    assert end is not None
    assert (end.code, end.forced) == (0, False)


_PROGRAM = """
import asyncio, contextlib, os, subprocess, sys, threading
from strandline.cli.__main__ import main
sys.argv = ["strandline", "--version"]
with contextlib.suppress(SystemExit):
    main()
import grpc


async def serve():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    ask = grpc.aio.insecure_channel(f"127.0.0.1:{port}").unary_unary("/nothing/here")
    while True:
        with contextlib.suppress(grpc.RpcError):
            await ask(b"", timeout=10)
        served.set()


served = threading.Event()
threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
assert served.wait(30)
# A function to be called in the child is what makes Python fork; PySpark gives one.
codes = [subprocess.run(["true"], preexec_fn=int, timeout=30).returncode for _ in range(200)]
print("codes", sorted(set(codes)), flush=True)
os._exit(0)
"""


def test_a_process_that_serves_can_fork() -> None:
    """Of two hundred programs that are started beside a busy gRPC server, each runs to its end."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}

    ran = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=100)

    assert ran.stdout.splitlines()[-1:] == ["codes [0]"], ran.stdout + ran.stderr[-2000:]


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


@pytest.mark.parametrize(("nodes", "given"), [(1, "1"), (2, "2"), (3, None), (5, None)])
def test_a_small_cluster_says_how_many_replicas_the_topic_of_groups_has(
    tmp_path: Path, nodes: int, given: str | None
) -> None:
    """Otherwise no group could be coordinated there; from three nodes on the controller's default holds."""
    words = LocalCluster(Plan(directory=tmp_path, nodes=nodes))._controller_command(1)
    found = [words[index + 1] for index, word in enumerate(words) if word == "--internal-replication-factor"]

    assert found == ([given] if given else [])
