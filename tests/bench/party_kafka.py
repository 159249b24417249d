"""Apache Kafka: three combined KRaft nodes on loopback from Maven, and a closed loop of Kafka's own producer.

A new cluster gets faster for minutes while its code is compiled, so it is warmed before anything is measured, and its
client is one process for the whole run. Without Java, javac, Maven or the packages Kafka is absent, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from closed_loop import cpu_ms, rss_mib
from party_nats import free_port

HERE = Path(__file__).parent
LIBRARIES = Path.home() / ".cache" / "strandline" / "kafka-4.3.1"
CLUSTER_ID = "MDAwMDAwMDAwMDAwMDAwMA"
NODES = (1, 2, 3)
FETCH_S, START_S, ANSWER_S = 600, 120, 120
_HEAP = "-Xms1g -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35".split()
"""The options of Kafka's own start script."""
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class KafkaAbsent(Exception):
    """Kafka cannot be run here; the message says why."""


def libraries() -> Path:
    """The folder with Kafka's jars and the compiled client, fetched and compiled if it is not there.

    Raises:
        KafkaAbsent: a tool is missing, or Maven does not get the packages.
    """
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise KafkaAbsent(f"{', '.join(missing)} not installed; on Debian: apt-get install default-jdk-headless maven")
    if not (LIBRARIES / "complete").exists():
        LIBRARIES.mkdir(parents=True, exist_ok=True)
        copy = ["mvn", "-B", "-q", "-f", str(HERE / "kafka" / "pom.xml"), "dependency:copy-dependencies"]
        _run([*copy, "-DincludeScope=runtime", f"-DoutputDirectory={LIBRARIES}"], FETCH_S)
        (LIBRARIES / "complete").touch()
    source = HERE / "kafka" / "ClosedLoop.java"
    _run(["javac", "-d", str(LIBRARIES / "classes"), "-cp", f"{LIBRARIES}/*", str(source)], START_S)
    return LIBRARIES


def _run(command: list[str], limit_s: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode:
        raise KafkaAbsent(f"{command[0]} failed: {(done.stdout + done.stderr).strip()[-500:]}")


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

    def __init__(self, pids: list[int], client: subprocess.Popen[str]) -> None:
        self._pids, self._client = pids, client
        self._topics = 0

    def measure(self, shape: Any, pace: Any) -> dict[str, object]:
        """One measurement on a topic of its own, led by node 1."""
        self._topics += 1
        topic = f"bench-{self._topics}"
        self._ask(f"create {topic}")
        try:
            return self._loop(topic, shape.kib * 1024, shape.window, pace.warm_s, pace.run_s)
        finally:
            self._ask(f"delete {topic}")

    def warm(self, seconds: float) -> None:
        """Run loops of both sizes, unmeasured."""
        self._ask("create warm")
        for size in (64 * 1024, 256 * 1024):
            self._loop("warm", size, 5, 0, seconds / 2)
        self._ask("delete warm")

    def _loop(self, topic: str, size: int, window: int, warm_s: float, run_s: float) -> dict[str, object]:
        self._say(f"loop {topic} {size} {window} {warm_s} {run_s}")
        self._hear("begin", warm_s)
        pids = dict(zip(("leader", "follower0", "follower1"), self._pids, strict=True)) | {"client": self._client.pid}
        used, steal, began = {name: cpu_ms(pid) for name, pid in pids.items()}, psutil.cpu_times(), time.perf_counter()
        _, count, p50_ms, p99_ms = self._hear("done", run_s).split()
        elapsed, now = time.perf_counter() - began, psutil.cpu_times()
        megabytes = int(count) * size / 1e6
        return {
            "megabytes_per_s": round(megabytes / elapsed, 1),
            "p50_ms": round(float(p50_ms), 2),
            "p99_ms": round(float(p99_ms), 2),
            "requests": int(count),
            "cpu_ms_per_mb": {name: round((cpu_ms(pid) - used[name]) / megabytes, 2) for name, pid in pids.items()},
            "rss_mib": {name: round(rss_mib(pid), 1) for name, pid in pids.items()},
            "steal_percent": round(100 * (now.steal - steal.steal) / max(1.0, sum(now) - sum(steal)), 2),
        }

    def _ask(self, command: str) -> None:
        self._say(command)
        self._hear(command.split()[0] + "d", 0)

    def _say(self, command: str) -> None:
        assert self._client.stdin is not None
        self._client.stdin.write(command + "\n")
        self._client.stdin.flush()

    def _hear(self, word: str, expected_s: float) -> str:
        assert self._client.stdout is not None
        # The client's own deadlines (Kafka's delivery.timeout.ms) end every wait; then its end closes the pipe.
        line = self._client.stdout.readline().strip()
        if not line.startswith(word):
            raise RuntimeError(f"the client of Kafka said {line!r} instead of {word!r} (after {expected_s} s or more)")
        return line


@contextmanager
def kafka_servers(directory: Path, warm_s: float) -> Iterator[Kafka]:
    """Three brokers, warmed for ``warm_s``.

    Raises:
        KafkaAbsent: as `libraries`, or the brokers do not start.
    """
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
                raise KafkaAbsent("StorageTool could not format a node's directory")
        for node in NODES:
            home = directory / f"kafka{node}"
            log = (home / "log").open("w")
            run = f"kafka.Kafka {home / 'server.properties'}"
            started.append(_java(*_HEAP, _QUIET, run, stdout=log, stderr=log, cwd=home))
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": sys.stderr}
        client = _java("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", f"ClosedLoop {bootstrap}", **pipes)
        party = Kafka([process.pid for process in started], client)
        started.append(client)
        party.warm(warm_s)
        yield party
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


if __name__ == "__main__":
    print(libraries(), os.linesep)
