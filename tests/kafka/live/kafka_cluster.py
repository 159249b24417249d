"""Apache Kafka from Maven: combined KRaft nodes on loopback that are paused, killed, stopped and started again.

Their logs have the layout of slf4j's simple logger, in the zone of India, so that a pattern must be given and a zone be
found. Without Java or Maven Kafka is absent, with the reason.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafka_jars import JARS, jars, run

CLUSTER_ID = "MDAwMDAwMDAwMDAwMDAwMA"
LOG_PATTERN = "%d %p %c - %m%n"
FETCH_S, START_S = 150, 240
LAG_TIME_MS, SESSION_MS = 4_000, 9_000
_SMALL = ("-Xms192m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Of a node that starts fast and lives for a short time."""
_ZONE = "-Duser.timezone=Asia/Kolkata"
_LOGGER = "-Dorg.slf4j.simpleLogger."
_LOG_OPTIONS = (
    f"{_LOGGER}showDateTime=true",
    f"{_LOGGER}dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
    f"{_LOGGER}showThreadName=false",
    f"{_LOGGER}defaultLogLevel=info",
)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def dumped(segment: Path) -> str:
    """What Kafka's own tool prints of a file of a metadata log."""
    tool = ["org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(segment)]
    return run(["java", f"{_LOGGER}defaultLogLevel=error", "-cp", f"{JARS}/*", *tool], START_S)


class Release(NamedTuple):
    """Which jars the nodes run, and what their JVM is given for their logs."""

    jars: Path
    options: Sequence[str]


_NEWEST = Release(JARS, (_ZONE, *_LOG_OPTIONS))


class Secured(NamedTuple):
    """What a listener for TLS and SCRAM-SHA-512 needs."""

    keys: Path
    """A PEM file of the key and its certificate."""
    user: str
    password: str


class KafkaCluster:
    """Combined nodes, numbered from 1."""

    def __init__(
        self,
        directory: Path,
        size: int,
        login: Secured | None = None,
        machine: Sequence[str] = _SMALL,
        release: Release = _NEWEST,
        settings: Mapping[str, object] = {},
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._release = release
        self._machine = machine
        self._login = login
        self.secured_port = _free_port()
        """Of the first node, if there is a login."""
        self.nodes = tuple(range(1, size + 1))
        self._ports = {node: (_free_port(), _free_port()) for node in self.nodes}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port, _ in self._ports.values()]

    def home(self, node: int) -> Path:
        return self._directory / f"node{node}"

    def data(self, node: int) -> Path:
        """Its log.dir, with the metadata log."""
        return self.home(node) / "data"

    def log(self, node: int) -> Path:
        """The one file of its logs."""
        return self.home(node) / "server.log"

    def format(self) -> None:
        for node in self.nodes:
            self.home(node).mkdir(parents=True)
            config = self.home(node) / "server.properties"
            config.write_text(self._properties(node))
            tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
            if self._login is not None:
                tool += ["--add-scram", f"SCRAM-SHA-512=[name={self._login.user},password={self._login.password}]"]
            run(["java", f"{_LOGGER}defaultLogLevel=error", "-cp", f"{self._release.jars}/*", *tool], START_S)

    def _properties(self, node: int) -> str:
        client, quorum = self._ports[node]
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{self._ports[n][1]}" for n in self.nodes),
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{quorum}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data(node),
            "replica.lag.time.max.ms": LAG_TIME_MS,
            "broker.session.timeout.ms": SESSION_MS,
            "min.insync.replicas": min(2, len(self.nodes)),
            "auto.create.topics.enable": "false",
            "unclean.leader.election.interval.ms": 1_000,
        }
        if self._login is not None:
            secured = f"SASL_SSL://127.0.0.1:{self.secured_port}"
            settings |= {
                "listeners": f"{settings['listeners']},{secured}",
                "advertised.listeners": f"{settings['advertised.listeners']},{secured}",
                "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},SASL_SSL:SASL_SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self._login.keys,
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
            }
        return "".join(f"{name}={value}\n" for name, value in (settings | dict(self._settings)).items())

    def start(self, node: int) -> None:
        """Start a node's process; its log goes on."""
        own = [*self._machine, *self._release.options, "-cp", f"{self._release.jars}/*"]
        command = ["java", *own, "kafka.Kafka", "server.properties"]
        with self.log(node).open("ab") as log:
            self._processes[node] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.home(node))

    def pid(self, node: int) -> int:
        return self._processes[node].pid

    def pause(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def kill(self, node: int) -> None:
        self._processes[node].kill()
        self._processes[node].wait()

    def stop(self, node: int) -> None:
        self._processes[node].terminate()
        self._processes[node].wait(START_S)

    def end(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


@contextmanager
def running(
    directory: Path, size: int, login: Secured | None = None, machine: Sequence[str] = _SMALL
) -> Iterator[KafkaCluster]:
    """A cluster that was formatted and started; with a login it has a listener for TLS and SCRAM too.

    Args:
        machine: options of the JVM.

    Raises:
        KafkaAbsent: as `kafka_jars.jars`.
    """
    jars(FETCH_S)
    cluster = KafkaCluster(directory, size, login, machine)
    cluster.format()
    try:
        for node in cluster.nodes:
            cluster.start(node)
        yield cluster
    finally:
        cluster.end()
