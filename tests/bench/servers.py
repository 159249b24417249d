"""The servers that several measures use: each is started when it is first needed, once, and stays up until `close`.

Invariant: a party that cannot be had is named in ``absent`` with the reason, and measured nowhere. Servers are not
stopped in between, because a frozen quorum would elect leaders when it goes on; what the idle ones use during a
measurement is in its ``others_percent``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from parties import (
    NATS,
    NATS_SYNCED,
    Party,
    PartyAbsent,
    Strandline,
    cluster,
    echo_server,
    nats_servers,
    stripped_pipeline,
)
from party_kafka import Kafka, kafka_servers

from strandline.cli.local.local_cluster import LocalCluster


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
        return self._once("fsync", lambda home: cluster(home, "fsync"))

    @property
    def kafka(self) -> Kafka | None:
        """Kafka, warmed; None if it is absent."""
        if not self._kafka_warm_s:
            self.absent.setdefault(Kafka.name, "left out of this run")
            return None
        return self._if_present(Kafka.name, lambda home: kafka_servers(home, self._kafka_warm_s))

    def all_parties(self) -> list[Party]:
        """Every party of the closed loop that can be had, in the order of the tables."""
        with_nats = [
            self._if_present(NATS, lambda home: nats_servers(home, sync_always=False)),
            self._if_present(NATS_SYNCED, lambda home: nats_servers(home, sync_always=True)),
        ]
        found: list[Party | None] = [
            Strandline(self.cached, "stream", "page-cache"),
            Strandline(self.cached, "unary", "page-cache"),
            Strandline(self.synced, "stream", "fsync"),
            Strandline(self.synced, "unary", "fsync"),
            *with_nats,
            self._once("stripped", stripped_pipeline),
            self._once("echo", lambda _: echo_server()),
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
