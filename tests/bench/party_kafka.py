"""Apache Kafka: three combined KRaft nodes on loopback from Maven, and a closed loop of Kafka's own producer.

A new cluster gets faster for minutes while its code is compiled, so it is warmed before anything is measured, and its
client is one process for the whole run. Without Java, javac, Maven or the packages Kafka is absent, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from free_port import free_port
from machine_time import Spent, Watch
from parties import PartyAbsent
from plan import Pace, Shape

if (_LIVE := str(Path(__file__).parents[1] / "kafka" / "live")) not in sys.path:
    # Where the tests of a real Kafka have its jars.
    sys.path.append(_LIVE)

from kafka_jars import JARS as LIBRARIES
from kafka_jars import KafkaAbsent, jars, run

HERE = Path(__file__).parent
CLUSTER_ID = "MDAwMDAwMDAwMDAwMDAwMA"
NODES = (1, 2, 3)
FETCH_S, START_S, ANSWER_S = 600, 120, 120
WARMED_GIB = 12.0
"""What all replicas hold at most while the cluster is warmed: retention bounds it, and 11.1 GiB were seen."""
_GIB_PER_S = 0.6
"""More than the brokers of a machine of two cores write, all replicas together."""
_HEAP = "-Xms1g -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35".split()
"""The options of Kafka's own start script."""
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def libraries() -> Path:
    """The folder with Kafka's jars and the compiled client, fetched and compiled if it is not there.

    Raises:
        PartyAbsent: a tool is missing, or Maven does not get the packages.
    """
    try:
        jars(FETCH_S, ("java", "javac", "mvn"))
        source = HERE / "kafka" / "ClosedLoop.java"
        run(["javac", "-d", str(LIBRARIES / "classes"), "-cp", f"{LIBRARIES}/*", str(source)], START_S)
    except KafkaAbsent as absent:
        raise PartyAbsent(str(absent)) from absent
    return LIBRARIES


def check_space(directory: Path, warm_s: float) -> None:
    """Refuse a disk that the warming would fill: brokers without space acknowledge nothing, and say so nowhere.

    Args:
        directory: of the nodes, or where it will be made.
        warm_s: how long the cluster is warmed.

    Raises:
        PartyAbsent: the disk has less space.
    """
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free_gib, needed_gib = shutil.disk_usage(there).free / (1 << 30), min(WARMED_GIB, warm_s * _GIB_PER_S)
    if free_gib < needed_gib:
        raise PartyAbsent(
            f"{there} has {free_gib:.1f} GiB free, and warming needs {needed_gib:.1f}: free some, or set TMPDIR"
        )


def _properties(node: int, home: Path, ports: Mapping[int, int], quorum: Mapping[int, int]) -> str:
    voters = ",".join(f"{n}@127.0.0.1:{quorum[n]}" for n in NODES)
    settings = {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[node]},CONTROLLER://127.0.0.1:{quorum[node]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[node]}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": home / "data",
        "min.insync.replicas": 2,
        "auto.create.topics.enable": "false",
        # Minutes of warming would fill a disk.
        "log.segment.bytes": 128 << 20,
        "log.retention.bytes": 512 << 20,
        "log.retention.check.interval.ms": 2_000,
        "log.segment.delete.delay.ms": 1_000,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _java(*arguments: str, **how: Any) -> subprocess.Popen[str]:
    classes = f"{LIBRARIES}/*:{LIBRARIES}/classes"
    return subprocess.Popen(["java", *arguments[:-1], "-cp", classes, *arguments[-1].split()], text=True, **how)


class Kafka:
    """Three brokers and one client process."""

    name = "Kafka"

    def __init__(self, bootstrap: str, homes: list[Path], pids: list[int], client: subprocess.Popen[str]) -> None:
        self.bootstrap, self.homes = bootstrap, homes
        self.pids = dict(zip(("node-1", "node-2", "node-3"), pids, strict=True))
        self._client = client
        self._topics = 0

    def measure(self, shape: Shape, pace: Pace) -> dict[str, object]:
        """One measurement on a topic of its own, led by node 1."""
        with self.topic(1) as topic:
            return self._loop(topic, shape.kib * 1024, shape.window, pace)

    def send_records(self, topic: str, batch_bytes: int, pace: Pace) -> tuple[int, Spent]:
        """Kafka's producer sends records of 1 KiB as fast as it can; how many were acknowledged."""
        self._say(f"records {topic} {batch_bytes} {pace.warm_s} {pace.run_s}")
        self._hear("begin")
        watch = Watch({**self.pids, "client": self._client.pid})
        count = int(self._hear("done").split()[1])
        return count, watch.end()

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """A topic with three replicas of each partition, deleted at the end."""
        self._topics += 1
        topic = f"bench-{self._topics}"
        self._ask(f"create {topic} {partitions}")
        try:
            yield topic
        finally:
            self._ask(f"delete {topic}")

    def warm(self, seconds: float) -> None:
        """Run what is measured, unmeasured: loops of both sizes, and records."""
        with self.topic(6) as topic:
            for size in (64 * 1024, 256 * 1024):
                self._loop(topic, size, 5, Pace(0, seconds / 3))
            self.send_records(topic, 256 * 1024, Pace(0, seconds / 3))

    def _loop(self, topic: str, size: int, window: int, pace: Pace) -> dict[str, object]:
        self._say(f"loop {topic} {size} {window} {pace.warm_s} {pace.run_s}")
        self._hear("begin")
        names = ("leader", "follower0", "follower1")
        watch = Watch({**dict(zip(names, self.pids.values(), strict=True)), "client": self._client.pid})
        count, *latencies = self._hear("done").split()[1:]
        spent = watch.end()
        megabytes = int(count) * size / 1e6
        return {
            "megabytes_per_s": round(megabytes / spent.elapsed_s, 1),
            **{name: round(float(ms), 2) for name, ms in zip(("p50_ms", "p99_ms", "p999_ms"), latencies, strict=True)},
            "requests": int(count),
            "cpu_ms_per_mb": spent.per_mb(megabytes),
            **spent.machine(),
        }

    def _ask(self, command: str) -> None:
        self._say(command)
        self._hear(command.split()[0] + "d")

    def _say(self, command: str) -> None:
        assert self._client.stdin is not None
        self._client.stdin.write(command + "\n")
        self._client.stdin.flush()

    def _hear(self, word: str) -> str:
        assert self._client.stdout is not None
        # The client's own deadlines (Kafka's delivery.timeout.ms) end every wait; then its end closes the pipe.
        line = self._client.stdout.readline().strip()
        if not line.startswith(word):
            raise RuntimeError(f"the client of Kafka said {line!r} instead of {word!r}")
        return line


@contextmanager
def kafka_servers(directory: Path, warm_s: float) -> Iterator[Kafka]:
    """Three brokers, warmed for ``warm_s``.

    Raises:
        PartyAbsent: as `libraries`, or the brokers do not start, or the disk is too full for the warming.
    """
    check_space(directory, warm_s)
    libraries()
    ports, quorum = ({n: free_port() for n in NODES} for _ in range(2))
    started: list[subprocess.Popen[str]] = []
    try:
        for node in NODES:
            home = directory / f"kafka{node}"
            home.mkdir(parents=True)
            config = home / "server.properties"
            config.write_text(_properties(node, home, ports, quorum))
            formatting = _java(_QUIET, f"kafka.tools.StorageTool format -t {CLUSTER_ID} -c {config}", stdout=-3)
            if formatting.wait(START_S):
                raise PartyAbsent("StorageTool could not format a node's directory")
        for node in NODES:
            home = directory / f"kafka{node}"
            log = (home / "log").open("w")
            run = f"kafka.Kafka {home / 'server.properties'}"
            started.append(_java(*_HEAP, _QUIET, run, stdout=log, stderr=log, cwd=home))
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": sys.stderr}
        client = _java("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", f"ClosedLoop {bootstrap}", **pipes)
        homes = [directory / f"kafka{node}" for node in NODES]
        party = Kafka(bootstrap, homes, [process.pid for process in started], client)
        started.append(client)
        party.warm(warm_s)
        yield party
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


if __name__ == "__main__":
    print(libraries(), os.linesep)
