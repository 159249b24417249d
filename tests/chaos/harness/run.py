"""One run of a scenario: the active faults, what happened, and the failures.

Invariant: every fault that was begun is undone, in reverse order, whether the scenario ended well, badly or was
interrupted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cluster import SESSION_S, Cluster
from harness.controllers import Accepted, Controllers
from harness.load import EVERYBODY, STRICT, STRICT_PARTITIONS, Load
from harness.scenario import Fault, Form, Scenario, Step
from running_cluster import CALL_S, Probe, until

from strandline.cli.local.processes import ServiceDied
from strandline.v1 import controller_service_pb2 as controller_pb

AVAILABLE_S = SESSION_S + 2.0
"""Criterion V4."""
_COMMAND_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A promise of availability: criterion V4 checks it against the clients' history at the end."""

    since_s: float
    why: str
    within_s: float
    partitions: tuple[int, ...]
    clients: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Run:
    """The state and the helpers of one scenario. Times are seconds of the machine's monotonic clock."""

    scenario: Scenario
    form: Form
    seed: int
    plan: list[Step]
    directory: Path
    cluster: Cluster
    probe: Probe
    load: Load
    controllers: Controllers | None = None
    """The several controllers, in a scenario that has them."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Undone last, in reverse order: for what `Scenario.prepare` makes."""
    counters: Counter[str] = field(default_factory=Counter)
    """What a scenario counts itself; those of the state events are added at the end."""
    failures: list[str] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    """Figures for the page."""
    healed_s: float | None = None
    """When the last fault was undone."""
    _begun: list[Fault] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)

    async def begin(self, fault: Fault) -> None:
        """Applies a fault until `end`, or until the run ends."""
        self.note(f"begin  {fault.described()}")
        self._begun.append(fault)
        await fault.apply(self.cluster)
        self.counters[fault.kind] += 1

    async def end(self, fault: Fault) -> None:
        if fault not in self._begun:
            return
        await fault.undo(self.cluster)
        self._begun.remove(fault)
        self.counters.update(fault.effects)
        self.healed_s = time.monotonic()
        self.note(f"end    {fault.described()}")

    @asynccontextmanager
    async def fault(self, fault: Fault) -> AsyncIterator[None]:
        await self.begin(fault)
        try:
            yield
        finally:
            await self.end(fault)

    async def heal(self) -> None:
        """Undoes every active fault, the latest first, and starts the stopped processes."""
        for fault in reversed(list(self._begun)):
            await self.end(fault)
        self.cluster.notice_ends()
        for place in self.cluster.places:
            if not self.cluster.service(place).running:
                await self.cluster.start_again(place)
                self.healed_s = time.monotonic()

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began_s

    def note(self, sentence: str) -> None:
        line = f"{self.age_s:8.2f} s  {sentence}"
        print(line, flush=True)
        with (self.directory / "story.txt").open("a") as story:
            story.write(line + "\n")

    def check(self, is_so: bool, sentence: str) -> None:
        """Records a failure, and continues, unless ``is_so``."""
        if not is_so:
            self.failures.append(sentence)
            self.note(f"WRONG  {sentence}")

    def expect_acks(
        self,
        why: str,
        *,
        since_s: float | None = None,
        within_s: float = AVAILABLE_S,
        partitions: tuple[int, ...] = tuple(range(STRICT_PARTITIONS)),
        clients: tuple[str, ...] = ("p0", "p1"),
    ) -> None:
        """From now (or ``since_s``) on, ``clients`` must get an acks=all OK in each partition ``within_s`` (V4).

        Call it when a fault begins that leaves min ISR healthy replicas and the controller, with clients that still
        reach them. It is checked later, from the history.
        """
        began_s = time.monotonic() if since_s is None else since_s
        self.expected.append(
            Expected(since_s=began_s, why=why, within_s=within_s, partitions=partitions, clients=clients)
        )

    @property
    def several(self) -> Controllers:
        """The several controllers of this scenario."""
        assert self.controllers is not None, "the scenario has one controller"
        return self.controllers

    async def leader(self, partition: int = 0, topic: str = STRICT) -> int:
        return await self.probe.leader(topic, partition)

    async def follower(self, leader: int, number: int = 0) -> int:
        """One of the other two replicas of partition 0."""
        return [each for each in (await self.probe.partition(STRICT)).replicas if each != leader][number]

    async def leader_epochs(self) -> list[int]:
        """The leader epoch of each partition; waits for a controller that answers."""

        async def look() -> list[int]:
            return [(await self.probe.partition(STRICT, index)).leader_epoch for index in range(STRICT_PARTITIONS)]

        return await until(look, "a controller tells the leader epochs")

    async def taken_over(self, why: str, since_s: float, from_: str, *, within_s: float = float("inf")) -> Accepted:
        """Waits until another controller decides, which must be ``within_s``."""
        first = await self.several.taken_over(why, since_s, from_=from_)
        took_s = first.at_s - since_s
        self.note(f"{first.place} decides after {took_s:.3f} s")
        self.check(took_s < within_s, f"{why} of {from_}: {took_s:.2f} s to a change elsewhere, {within_s:g} s allowed")
        return first

    def nothing_decided(self, since_s: float, why: str, counter: str) -> None:
        """No change that was asked for after ``since_s`` may have been accepted; counted if it is so."""
        decided = [each for each in self.several.accepted if each.invoked_s > since_s]
        self.check(not decided, f"{len(decided)} changes were accepted {why}")
        self.counters[counter] += not decided

    async def acked_until(self, until_s: float) -> None:
        """Every client is acknowledged in every partition once a second, up to a time of the monotonic clock."""
        while time.monotonic() < until_s:
            await self.load.acked(3, clients=EVERYBODY)
            await asyncio.sleep(1.0)

    def recover(self, *words: str) -> None:
        """The command of OPERATIONS, on the directories of running nodes."""
        own = [sys.executable, "-m", "strandline.controller", "recover", "--data-dir"]
        directories = [str(node.directory) for node in self.cluster.nodes.values()]
        command = [*own, str(self.cluster.controller.directory), *words, *directories]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMMAND_S)
        self.note(f"recover {(done.stdout + done.stderr).strip()}")
        assert done.returncode == 0, done.stderr
        self.counters["recovered"] += 1

    async def prefer_leaders(self) -> int:
        """Moves leadership back to the preferred replicas; the one of partition 0, which the stale client uses."""
        request = controller_pb.ElectLeadersRequest(timeout_ms=5_000)
        for topic in self.load.topics:
            request.topic_partitions.add(topic=topic)

        async def look() -> bool:
            await self.probe.controller.ElectLeaders(request, timeout=CALL_S)
            topics = [await self.probe.topic(topic) for topic in self.load.topics]
            return all(each.leader_id == each.replicas[0] for topic in topics for each in topic.partitions)

        await until(look, "the preferred replicas lead")
        await self.in_sync()
        return await self.leader()

    async def in_sync(self) -> None:
        """Waits until every replica of every topic is in its ISR."""
        for topic in self.load.topics:
            await self.probe.in_sync(topic)

    async def sleep_until(self, at_s: float) -> None:
        """Waits until a time of the monotonic clock."""
        await asyncio.sleep(max(0.0, at_s - time.monotonic()))

    def store(self, name: str, content: Any) -> None:
        """Writes a JSON document into the result directory."""
        (self.directory / name).write_text(json.dumps(content, indent=2, default=str) + "\n")

    async def undo_everything(self) -> None:
        """The last resort of an interrupted run: undoes every fault, even if the undo of another fails."""
        for fault in reversed(list(self._begun)):
            try:
                await fault.undo(self.cluster)
            except (OSError, RuntimeError, AssertionError, TimeoutError, ServiceDied) as error:
                self.note(f"UNDO   {fault.described()} failed: {error}")
        self._begun.clear()
