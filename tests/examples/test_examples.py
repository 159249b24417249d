"""The examples in other languages work as described, while the leader dies."""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import grpc
import pytest

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import Producer
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub

# ---- toolchains
# Builds the examples with their languages' own tools, in a copy, so that nothing is left in the tree.
#
# Invariant: a missing tool or package skips the test with its name; any other failure is a failure.


ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("produce", "consume", "watch", "group")
_BUILD_S = 400.0
_BUF = Path(sys.executable).parent / "buf"


def copied(language: str, directory: Path) -> Path:
    """The example's sources beside the contract, as in the repository."""
    place = directory / "examples" / language
    shutil.copytree(
        ROOT / "examples" / language, place, ignore=shutil.ignore_patterns("node_modules", "gen", "package-lock.json")
    )
    protos = directory / "protos"
    if not protos.exists():
        protos.symlink_to(ROOT / "protos")
    return place


def built_go(directory: Path) -> Mapping[str, Sequence[str]]:
    """The commands of the Go programs."""
    _needs("go")
    place = copied("go", directory)
    _fetched(["go", "mod", "download"], place)
    _run([str(_BUF), "generate"], place)
    _run(["go", "vet", "./..."], place)
    _run(["go", "build", "-o", str(place / "bin") + "/", "./..."], place)
    return {name: [str(place / "bin" / name)] for name in PROGRAMS}


def built_node(directory: Path) -> Mapping[str, Sequence[str]]:
    """The commands of the Node programs; nothing is generated."""
    _needs("node")
    _needs("npm")
    place = copied("node", directory)
    here = ROOT / "examples" / "node" / "node_modules"
    if here.is_dir():
        (place / "node_modules").symlink_to(here)
    else:
        _fetched(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], place)
    return {name: ["node", str(place / f"{name}.js")] for name in PROGRAMS}


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on the PATH")


def _fetched(command: Sequence[str], place: Path) -> None:
    ran = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_BUILD_S)
    if ran.returncode:
        pytest.skip(f"{' '.join(command[:3])}: packages cannot be had: {ran.stderr.strip().splitlines()[-1:]}")


def _run(command: Sequence[str], place: Path) -> None:
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    ran = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_BUILD_S, env=environment)
    assert ran.returncode == 0, f"{' '.join(command)}: {ran.stdout}{ran.stderr}"


Programs = Mapping[str, Sequence[str]]
BUILDERS: dict[str, Callable[[Path], Programs]] = {"go": built_go, "node": built_node}
LINE_S = 40.0
BATCH = 500

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes on loopback with short sessions."""
    plan = Plan(
        directory=tmp_path_factory.mktemp("examples-cluster"),
        controller_settings={"session_timeout_ms": "1500", "heartbeat_interval_ms": "250"},
        node_settings={"low_space_bytes": "0"},
    )
    running = LocalCluster(plan)
    try:
        asyncio.run(running.start())
        yield running
        asyncio.run(running.stop())
    finally:
        running.kill()


@pytest.fixture(scope="module", params=BUILDERS)
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """One language's programs."""
    return BUILDERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, led by node 1, and of one partition."""
    name = re.sub(r"\W", "-", request.node.name)
    wanted = pb.CreatableTopic(name=name, configs={"min.insync.replicas": "2"})
    wanted.assignments.add(node_ids=[1, 2, 3])
    with grpc.insecure_channel(cluster.bootstrap) as channel:
        answer = ControllerServiceStub(channel).CreateTopics(pb.CreateTopicsRequest(topics=[wanted]), timeout=20)
    assert not answer.topics[0].error_code, answer.topics[0].error_message
    return name


class Program:
    """One of an example's programs, its output read line by line with a deadline."""

    def __init__(self, command: Sequence[str], cluster: LocalCluster, *words: str) -> None:
        flags = [f"--bootstrap={cluster.bootstrap}", *words]
        self.process = subprocess.Popen([*command, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._rest = b""

    def line(self, wanted: str) -> str:
        """Waits for a line that matches; earlier ones are skipped."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + LINE_S
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                line, found, rest = self._rest.partition(b"\n")
                if found:
                    self._rest = rest
                    if re.search(wanted, line.decode()):
                        return line.decode()
                elif ready.select(1.0):
                    read = os.read(self.process.stdout.fileno(), 1 << 16)
                    assert read, f"ended with {self.process.wait(LINE_S)} before a line like {wanted}"
                    self._rest += read
        raise AssertionError(f"no line like {wanted} within {LINE_S:g} s")

    def feed(self, lines: Sequence[str]) -> None:
        """Writes to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())

    def end(self) -> int:
        """Closes its stdin and waits for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(LINE_S)

    def kill(self) -> None:
        """Kills it in any state."""
        self.process.kill()
        self.process.wait(LINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def seconds(programs: Programs, number: int) -> str:
    """A duration as the language writes it."""
    return str(number) if programs["watch"][0] == "node" else f"{number}s"


def test_producer_consumer_and_watch_follow_the_leader(programs: Programs, cluster: LocalCluster, topic: str) -> None:
    """Lines sent before and after a kill -9 of the leader are acknowledged and read; the watch shows the move."""
    first, second = ([f"line {number}" for number in range(start, start + BATCH)] for start in (0, BATCH))
    watch = Program(programs["watch"], cluster, f"--for={seconds(programs, 60)}")
    producer = Program(programs["produce"], cluster, f"--topic={topic}")
    try:
        watch.line(rf"{topic}-0 leader node 1 epoch 0")
        producer.feed(first)
        assert producer.line("to") == f"{topic}-0 0 to {BATCH - 1}"
        cluster.kill_node(1)
        producer.feed(second)
        producer.line(rf"{topic}-0 \d+ to \d+")
        watch.line(rf"{topic}-0 leader node [23] epoch [1-9]")
        ended = producer.end()
    finally:
        producer.kill()
        watch.kill()
        asyncio.run(cluster.start_node(1))

    consumed = subprocess.run(
        [*programs["consume"], f"--bootstrap={cluster.bootstrap}", f"--topic={topic}", f"--count={2 * BATCH}"],
        capture_output=True, text=True, timeout=LINE_S,
    )  # fmt: skip
    rows = [line.split("\t") for line in consumed.stdout.splitlines()]
    assert (ended, consumed.returncode, consumed.stderr) == (0, 0, "")
    assert [int(offset) for _, offset, _ in rows] == list(range(2 * BATCH))
    assert set(first) | set(second) == {value for *_, value in rows}


def test_members_of_a_group_share_a_topic(programs: Programs, cluster: LocalCluster, topic: str) -> None:
    """The second member begins behind what the first one committed before it left, and nothing is read twice."""
    lines = [f"line {number}" for number in range(BATCH)]
    producer = Program(programs["produce"], cluster, f"--topic={topic}")
    try:
        producer.feed(lines)
        assert producer.end() == 0
    finally:
        producer.kill()
    half = BATCH // 2
    words = [f"--bootstrap={cluster.bootstrap}", f"--topic={topic}", f"--group=of-{topic}", f"--count={half}"]
    read = [
        subprocess.run([*programs["group"], *words], capture_output=True, text=True, timeout=LINE_S) for _ in range(2)
    ]
    rows = [line.split("\t") for one in read for line in one.stdout.splitlines()]

    assert [(one.returncode, one.stderr) for one in read] == [(0, "")] * 2
    assert [int(offset) for _, offset, _ in rows] == list(range(2 * half))
    assert [value for *_, value in rows] == lines


def test_a_consumer_is_spared_what_was_aborted(programs: Programs, cluster: LocalCluster, topic: str) -> None:
    """It begins at an aborted record, and goes on behind the markers."""

    async def write() -> None:
        async with Producer(cluster.bootstrap, transactional_id=f"of-{topic}") as producer:
            for value in (b"aborted", b"first", b"aborted", b"second"):
                async with producer.transaction() as transaction:
                    await producer.send_and_wait(topic, value)
                    if value == b"aborted":
                        await transaction.abort()

    asyncio.run(write())
    words = [f"--bootstrap={cluster.bootstrap}", f"--topic={topic}", "--count=2"]
    read = subprocess.run([*programs["consume"], *words], capture_output=True, text=True, timeout=LINE_S)

    assert (read.returncode, read.stderr) == (0, "")
    assert [line.split("\t")[1:] for line in read.stdout.splitlines()] == [["2", "first"], ["6", "second"]]


def test_a_consumer_of_a_topic_that_is_not_there_ends_by_itself(programs: Programs, cluster: LocalCluster) -> None:
    """Without the topic the programs wait for it, and give up when their time is over."""
    words = [f"--bootstrap={cluster.bootstrap}", "--topic=nowhere", "--count=1", f"--for={seconds(programs, 1)}"]
    ran = subprocess.run(
        [*programs["consume"], *words],
        capture_output=True, text=True, timeout=LINE_S,
    )  # fmt: skip

    assert ran.returncode == 1
    assert "nowhere" in ran.stderr


def test_no_registry_is_named_by_a_lock_file() -> None:
    """A lock file of npm names the host of a registry; the examples have none, their versions are exact."""
    tracked = [path for path in (ROOT / "examples").rglob("*") if "node_modules" not in path.parts and path.is_file()]

    assert [path.name for path in tracked if path.name in ("package-lock.json", ".npmrc")] == []
    assert [path.name for path in tracked if b'"resolved"' in path.read_bytes()] == []
