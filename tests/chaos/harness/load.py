"""The common load of RELIABILITY.md#the-load, as processes in the client namespaces, and the driver's view of it.

cli0: producers p0 and p1 (acks=all), consumers c0 (tails) and seeker, the requests for the ends of partitions.
cli1: producers p2 and p3 (acks=all), a0 (acks=1, a topic of its own), consumer c1 (tails), the stale client.

Invariant: the driver reads only what the clients have written into their history files.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.client_process import ClientProcess
from harness.cluster import Cluster
from harness.history_file import new_lines, operations
from running_cluster import Probe, until

from strandline_sim.checks.history import Operation, RecordValue

STRICT, LOOSE = "tides", "loose"
STRICT_PARTITIONS = 3
EVERYBODY = ("p0", "p1", "p2", "p3")
"""The producers with acks=all."""
_LOOK_EVERY_S = 0.1
_STARTED_S = 90.0
_PRODUCED_S = 60.0
_READ_S = 120.0


@dataclass(slots=True)
class Sent:
    """One send of a client, as far as it is known."""

    value: RecordValue
    topic: str
    partition: int
    invoked_s: float
    completed_s: float | None = None
    outcome: str = ""
    """ok, definite, indefinite; empty while it is open."""


@dataclass(slots=True, kw_only=True)
class Load:
    """The clients of a run. `start` after the topics exist; `finish` ends the load and reads everything."""

    cluster: Cluster
    probe: Probe
    directory: Path
    seed: int
    pause_s: float = 0.02
    """Pause of a producer between two records: 4 producers, so 200 records per second."""
    strict: str = STRICT
    loose: str = LOOSE
    """Names of the topics, where several loads meet one cluster."""
    shown: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the clients of a process show the cluster, if not the certificate of `client`."""
    sends: list[Sent] = field(default_factory=list)
    """Every send of every client, in the order in which the driver learned of it."""
    deaths: list[str] = field(default_factory=list)
    """Clients that failed, which is never right."""
    _open: dict[RecordValue, Sent] = field(default_factory=dict)
    _read_up_to: dict[Path, int] = field(default_factory=dict)
    _processes: dict[str, ClientProcess] = field(default_factory=dict)
    _watching: asyncio.Task[None] | None = None

    @property
    def topics(self) -> dict[str, int]:
        """Topic names and their numbers of partitions."""
        return {self.strict: STRICT_PARTITIONS, self.loose: 1}

    async def create_topics(self) -> None:
        """One topic for acks=all, one for acks=1, whose preferred leader is that of the first one's partition 0."""
        made = await self.probe.create_topic(self.strict, partitions=STRICT_PARTITIONS, min_insync_replicas="2")
        await self.probe.create_topic(self.loose, assignment=list(made.partitions[0].replicas), min_insync_replicas="2")

    async def start(self) -> None:
        """Starts the clients; returns when all of them have begun."""
        met = self.cluster.address(await self.probe.leader(self.strict, 0))
        assert met is not None
        strict = {"topic": self.strict, "acks": -1, "pause_s": self.pause_s}
        await self.start_worker(
            "cli0",
            "cli0",
            producers={"p0": strict, "p1": strict},
            consumers=["c0"],
            seekers=["seeker"],
            stale=None,
            asks_ends=True,
        )
        await self.start_worker(
            "cli1",
            "cli1",
            producers={"p2": strict, "p3": strict, "a0": strict | {"topic": self.loose, "acks": 1}},
            consumers=["c1"],
            seekers=[],
            stale={"address": met.client, "topic": self.strict, "pause_s": self.pause_s * 10},
            asks_ends=False,
        )
        self._watching = asyncio.create_task(self._watch())

    async def start_worker(self, name: str, place: str, **wanted: Any) -> None:
        """Starts a process with clients in a namespace; returns when they have begun."""
        history = self.directory / f"history-{name}.jsonl"
        history.touch()
        self._read_up_to[history] = 0
        wanted |= {
            "bootstrap": self.cluster.bootstrap,
            "topics": self.topics,
            "history": str(history),
            "seed": self.seed,
            "tls": self.shown.get(name) or self._tls(),
        }
        self._processes[name] = process = ClientProcess(name, self.directory / f"{name}.log")
        await process.start(self.cluster.namespaces, place, "load_worker.py", wanted)
        await process.hear("running", _STARTED_S)

    def _tls(self) -> dict[str, str]:
        """The certificate that the clients use; empty files where the cluster has no TLS."""
        client_tls = getattr(self.cluster, "client_tls", None)
        return {name: str(path) for name, path in client_tls("client").items()} if client_tls else {}

    async def _watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(_LOOK_EVERY_S)

    def look(self) -> None:
        """Reads what the clients have written since the last call, except the reads of consumers."""
        for path, position in self._read_up_to.items():
            lines, self._read_up_to[path] = new_lines(path, position)
            for line in lines:
                if line.startswith(b'["sen'):
                    self._take(json.loads(line))
        for name, process in self._processes.items():
            if process.death and not any(name in death for death in self.deaths):
                self.deaths.append(process.death)

    def _take(self, row: list[Any]) -> None:
        if row[0] == "send":
            sent = Sent(RecordValue(row[2], row[3]), row[4], row[5], row[1])
            self.sends.append(sent)
            self._open[sent.value] = sent
        else:
            sent = self._open.pop(RecordValue(row[2], row[3]))
            sent.completed_s, sent.outcome = row[1], row[4]

    def acks_since(
        self, since_s: float, *, clients: tuple[str, ...] = EVERYBODY, topic: str | None = None
    ) -> dict[int, list[float]]:
        """By partition: when sends of ``clients`` that began after ``since_s`` were acknowledged, earliest first."""
        topic = topic or self.strict
        found: dict[int, list[float]] = {index: [] for index in range(self.topics[topic])}
        for sent in reversed(self.sends):
            if sent.invoked_s < since_s - 1.0:
                break
            is_meant = sent.topic == topic and sent.value.client in clients
            if is_meant and sent.invoked_s >= since_s and sent.outcome == "ok" and sent.completed_s is not None:
                found[sent.partition].append(sent.completed_s)
        return {index: sorted(times) for index, times in found.items()}

    def sent_between(self, client: str, since_s: float, until_s: float) -> list[Sent]:
        """The sends of one client that began in a span of time."""
        return [each for each in self.sends if each.value.client == client and since_s <= each.invoked_s < until_s]

    async def acked(self, count: int, *, timeout_s: float = 30.0, clients: tuple[str, ...] = ("p0", "p1")) -> None:
        """Waits for ``count`` more acknowledgements in every acks=all partition, of sends that begin from now on.

        Raises:
            AssertionError: they did not come in time, or a client failed.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while min(map(len, self.acks_since(began_s, clients=clients).values())) < count:
            assert not self.deaths, self.deaths
            reported = {index: len(times) for index, times in self.acks_since(began_s, clients=clients).items()}
            assert loop.time() < began_s + timeout_s, f"not within {timeout_s:g} s: {count} acks each; got {reported}"
            await asyncio.sleep(_LOOK_EVERY_S)

    async def stop_producing(self) -> None:
        """Ends all producers; returns when every send has ended."""
        await self._tell({"stop": True})
        await asyncio.gather(*(each.hear("produced", _PRODUCED_S) for each in self._processes.values()))

    async def read_everything(self) -> None:
        """Lets all consumers, and one from the beginning, read up to the current ends."""
        await self.read_again()
        await self._tell({"finish": await self._ends()})
        await asyncio.gather(*(each.hear("done", _READ_S) for each in self._processes.values()))
        await asyncio.gather(*(each.ended() for each in self._processes.values()))
        self.look()

    async def read_again(self) -> None:
        """One more consumer reads everything there is now, from the beginning."""
        await self._tell({"read": await self._ends()}, "cli0")
        await self._processes["cli0"].hear("read", _READ_S)

    async def pause(self) -> None:
        await self._tell({"pause": True})
        await asyncio.gather(*(each.hear("paused", _PRODUCED_S) for each in self._processes.values()))
        self.look()

    async def go_on(self) -> None:
        await self._tell({"pause": False})

    async def burst(self, records: int) -> None:
        """Every producer sends this many records without pauses, from now on."""
        await self._tell({"burst": records})

    async def _ends(self) -> dict[str, list[int]]:
        return {topic: [await self._end(topic, index) for index in range(n)] for topic, n in self.topics.items()}

    async def _tell(self, command: dict[str, Any], *names: str) -> None:
        for name, process in self._processes.items():
            if names and name not in names:
                continue
            await process.tell(command)

    async def _end(self, topic: str, index: int) -> int:
        async def look() -> list[int]:
            leader = await self.probe.leader(topic, index)
            answer = await self.probe.latest(topic, leader, index)
            return [] if answer.error_code else [answer.offset]

        return (await until(look, f"the end of {topic}-{index} is known"))[0]

    def history(self) -> Iterator[Operation]:
        """Everything the clients did and saw, read from their files as it is taken: an hour of it is 1 GB."""
        return operations(sorted(self._read_up_to), list(self.topics), frozenset({self.loose}))

    async def close(self) -> None:
        """Ends the client processes, if they have not ended."""
        if self._watching is not None:
            self._watching.cancel()
        for process in self._processes.values():
            await process.kill()
