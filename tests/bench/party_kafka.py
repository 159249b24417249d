"""Apache Kafka: three combined KRaft nodes on loopback from Maven, and a closed loop of Kafka's own producer.

A new cluster gets faster for minutes while its code is compiled, so it is warmed before anything is measured, and its
client is one process for the whole run. Without Java, javac, Maven or the packages Kafka is absent, with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bars import KAFKA
from child import HERE
from kafka_cluster import KafkaCluster, Release
from kafka_jars import JARS, KafkaAbsent, jars, run
from machine_time import Spent, Watch
from plan import Pace, Shape

FETCH_S, START_S = 600, 120
WARMED_GIB = 12.0
"""What all replicas hold at most while the cluster is warmed: retention bounds it, and 11.1 GiB were seen."""
_GIB_PER_S = 0.6
"""More than the brokers of a machine of two cores write, all replicas together."""
_HEAP = "-Xms1g -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35".split()
"""The options of Kafka's own start script."""
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel="
_SETTINGS = {
    # Kafka's defaults, where the tests' brokers have others.
    "replica.lag.time.max.ms": 30_000,
    "unclean.leader.election.interval.ms": 300_000,
    # Minutes of warming would fill a disk.
    "log.segment.bytes": 128 << 20,
    "log.retention.bytes": 512 << 20,
    "log.retention.check.interval.ms": 2_000,
    "log.segment.delete.delay.ms": 1_000,
}


class PartyAbsent(Exception):
    """A party cannot be run here; the message says why."""


def check_space(directory: Path, warm_s: float) -> None:
    """Refuse a disk that the warming would fill: brokers without space acknowledge nothing, and say so nowhere.

    Raises:
        PartyAbsent: the disk of ``directory``, which need not exist yet, has less space.
    """
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free_gib, needed_gib = shutil.disk_usage(there).free / (1 << 30), min(WARMED_GIB, warm_s * _GIB_PER_S)
    if free_gib < needed_gib:
        raise PartyAbsent(
            f"{there} has {free_gib:.1f} GiB free, and warming needs {needed_gib:.1f}: free some, or set TMPDIR"
        )


class Kafka:
    """Three brokers and one client process."""

    name = KAFKA

    def __init__(self, cluster: KafkaCluster, client: subprocess.Popen[str]) -> None:
        self.bootstrap = ",".join(cluster.bootstrap)
        self.pids = {f"node-{node}": cluster.pid(node) for node in cluster.nodes}
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

    def read_records(self, topic: str) -> tuple[int, int, float]:
        """Kafka's consumer reads a topic to its end: how many records, bytes of their values, and seconds."""
        self._say(f"read {topic}")
        read, size_bytes, seconds = self._hear("done").split()[1:]
        return int(read), int(size_bytes), float(seconds)

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
        times = {name: float(ms) for name, ms in zip(("p50_ms", "p99_ms", "p999_ms"), latencies, strict=True)}
        return {**times, "requests": int(count), **spent.figures(int(count) * size / 1e6)}

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
        PartyAbsent: a tool or the packages are missing, the brokers do not start, or the disk is too full.
    """
    check_space(directory, warm_s)
    quiet = Release(JARS, (f"{_LOG_LEVEL}warn",))
    cluster = KafkaCluster(directory, 3, machine=_HEAP, release=quiet, settings=_SETTINGS)
    try:
        jars(FETCH_S, ("java", "javac", "mvn"))
        source = HERE / "kafka" / "ClosedLoop.java"
        run(["javac", "-d", str(JARS / "classes"), "-cp", f"{JARS}/*", str(source)], START_S)
        cluster.format()
    except KafkaAbsent as absent:
        raise PartyAbsent(str(absent)) from absent
    command = ["java", f"{_LOG_LEVEL}error", "-cp", f"{JARS}/*:{JARS}/classes", "ClosedLoop"]
    client = None
    try:
        for node in cluster.nodes:
            cluster.start(node)
        pipe = subprocess.PIPE
        client = subprocess.Popen(
            [*command, ",".join(cluster.bootstrap)], stdin=pipe, stdout=pipe, stderr=sys.stderr, text=True
        )
        party = Kafka(cluster, client)
        party.warm(warm_s)
        yield party
    finally:
        if client is not None:
            client.kill()
            client.wait()
        cluster.end()
