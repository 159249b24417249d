"""Members of one consumer group as processes, with a producer for them; and which node coordinates what they do.

The odd slots live in cli1, the others and the producer in cli0. A process that is started again is another member: a
new process with a new member id and a history file of its own.

Invariant: the driver judges only what these processes wrote down, and what nodes answered it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.client_process import ClientProcess
from running_cluster import CALL_S, until

from strandline.client import Admin
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE, partition_of
from strandline.core.errors import Refused
from strandline.v1 import group_service_pb2 as pb
from strandline.v1.group_service_pb2_grpc import GroupServiceStub
from strandline_sim.checks.history import Anomaly

if TYPE_CHECKING:
    from harness.run import Run

HALF = "cli1"
"""The namespace in which every second member lives."""
SESSION_MS = 6_000
REBALANCE_MS = 10_000
LOOK_EVERY_S = 0.05
_STARTED_S = 60.0
_STOPPED_S = 60.0
_SHOWN_OF_A_KIND = 3


class Members:
    """The processes of one group in one run. Times are seconds of the machine's monotonic clock."""

    group: str
    topic: str
    partitions: int
    """Partitions of the topic that the group reads."""
    script: str
    """The script of a member."""
    letter: str
    """The letter with which names of members begin."""
    record_every_s: float

    def __init__(self, run: Run, slots: int) -> None:
        self.run = run
        self.slots = slots
        self._members: dict[int, ClientProcess] = {}
        self._lives: Counter[int] = Counter()
        self._histories: dict[Path, int] = {}
        """Each member's file, and how far it was read."""
        self._producer = ClientProcess("producer", run.directory / "producer.log")
        self._sends = run.directory / "history-producer.jsonl"
        self._is_closed = False

    def wanted(self, slot: int, name: str) -> dict[str, Any]:
        """What a member is to do beside what all are."""
        raise NotImplementedError

    async def start_producer(self) -> None:
        """Returns when it produces."""
        self.run.stack.push_async_callback(self.close)
        wanted: dict[str, Any] = {
            "producers": {self.topic: {"topic": self.topic, "acks": -1, "pause_s": self.record_every_s}},
            "consumers": [],
            "seekers": [],
            "stale": None,
            "asks_ends": False,
            "bootstrap": self.run.cluster.bootstrap,
            "topics": {self.topic: self.partitions},
            "tls": {},
            "seed": self.run.seed,
            "history": str(self._sends),
        }
        await self._producer.start(self.run.cluster.namespaces, "cli0", "load_worker.py", wanted)
        await self._producer.hear("running", _STARTED_S)

    async def begin(self, slot: int) -> None:
        """Starts a member, unless it runs or the run is over; returns when it has subscribed."""
        known = self._members.get(slot)
        if self._is_closed or (known is not None and known.running):
            return
        self._lives[slot] += 1
        name = f"{self.letter}{slot}.{self._lives[slot]}"
        history = self.run.directory / f"history-{name}.jsonl"
        history.touch()
        self._histories[history] = 0
        self._members[slot] = member = ClientProcess(name, self.run.directory / f"{name}.log")
        wanted = {
            "name": name,
            "group": self.group,
            "history": str(history),
            "bootstrap": self.run.cluster.bootstrap,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            **self.wanted(slot, name),
        }
        await member.start(self.run.cluster.namespaces, HALF if slot % 2 else "cli0", self.script, wanted)
        await member.hear("running", _STARTED_S)

    def member(self, slot: int) -> ClientProcess:
        """The present process of a slot."""
        return self._members[slot]

    @property
    def deaths(self) -> list[str]:
        """How the present processes died; a killed one is soon replaced by its successor."""
        return [each.death for each in (*self._members.values(), self._producer) if each.death]

    async def stop_producer(self) -> None:
        """Returns when every send has ended."""
        await self._producer.tell({"stop": True})
        await self._producer.hear("produced", _STOPPED_S)

    async def caught_up(self, admin: Admin, timeout_s: float) -> None:
        """Waits until the group has committed up to every end.

        Raises:
            AssertionError: not in time.
        """
        began_s = time.monotonic()

        async def look() -> bool:
            with suppress(Refused, TimeoutError):
                ends = await admin.list_offsets(self.topic)
                committed = await admin.list_group_offsets(self.group)
                reached = {tp.partition: one.offset for tp, one in committed.items() if one is not None}
                return all(reached.get(index, 0) == found.offset for index, found in ends.items())
            return False

        await until(look, f"the group has committed everything in {self.topic}", timeout_s=timeout_s)
        self.run.measured["lag_gone_s"] = round(time.monotonic() - began_s, 1)

    async def leave(self) -> None:
        """Lets every member commit, leave the group, and end."""
        members = self._members.values()
        await asyncio.gather(*(each.tell({"stop": True}) for each in members))
        await asyncio.gather(*(each.hear("done", _STOPPED_S) for each in members))
        await asyncio.gather(*(each.ended() for each in members))

    def show(self, found: Iterable[Anomaly]) -> None:
        """Each anomaly is a failure, of many of one kind the first ones and their number; so is each death."""
        shown: Counter[str] = Counter()
        for anomaly in found:
            shown[anomaly.name] += 1
            self.run.check(shown[anomaly.name] > _SHOWN_OF_A_KIND, f"{anomaly.name}: {anomaly.sentence}")
        for name, count in shown.items():
            self.run.check(count <= _SHOWN_OF_A_KIND, f"{name}: and {count - _SHOWN_OF_A_KIND} more")
        for death in self.deaths:
            self.run.check(False, death)

    def measure(self, gaps: list[float]) -> None:
        """How long commits stayed away after faults."""
        if gaps:
            self.run.measured["commits_away_max_s"] = round(max(gaps), 2)
            self.run.measured["commits_away_median_s"] = round(sorted(gaps)[len(gaps) // 2], 2)

    async def close(self) -> None:
        self._is_closed = True
        for process in (*self._members.values(), self._producer):
            await process.kill()


class Coordinated(NamedTuple):
    """What has a coordinator: the key, what kind of key it is, and the topic whose leaders coordinate such keys."""

    key: str
    kind: pb.CoordinatorKeyType
    topic: str


def consumer_group(group_id: str) -> Coordinated:
    return Coordinated(group_id, pb.COORDINATOR_KEY_TYPE_UNSPECIFIED, GROUP_STATE)


def transactional_id(name: str) -> Coordinated:
    return Coordinated(name, pb.COORDINATOR_KEY_TYPE_TRANSACTION, TRANSACTION_STATE)


async def coordinator(run: Run, of: Coordinated) -> int:
    """The node that the living nodes name (FindCoordinator)."""
    request = pb.FindCoordinatorRequest(key_type=of.kind, coordinator_keys=[of.key])

    async def look() -> list[int]:
        for node_id, service in run.cluster.nodes.items():
            if not service.running:
                continue
            stub = GroupServiceStub(run.probe.channel(node_id))
            (found,) = (await stub.FindCoordinator(request, timeout=CALL_S)).coordinators
            if not found.error_code and found.HasField("node_id"):
                return [found.node_id]
        return []

    return (await until(look, f"a node names the coordinator of {of.key}"))[0]


async def coordinator_epoch(run: Run, of: Coordinated) -> int:
    """The leader epoch of the partition whose leader is the coordinator."""
    state = await run.probe.topic(of.topic)
    return state.partitions[partition_of(of.key, len(state.partitions))].leader_epoch
