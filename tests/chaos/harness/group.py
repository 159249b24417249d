"""A consumer group under faults: members as processes, a producer for them, and somebody who asks what is committed.

The members' odd slots live in cli1, the others and the producer in cli0. A member that is started again is another
one: a new process with a new member id and a history file of its own.

Invariant: the driver judges only what members and the producer wrote down, and what coordinators answered it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from harness.client_process import ClientProcess
from harness.coordinator import coordinator, coordinator_epoch
from harness.coordinator import group as coordinated_group
from harness.group_history_file import GroupHistoryWriter, member_operations, member_reads
from harness.history_file import new_lines, operations
from running_cluster import until

from strandline.client import Admin, DescribedGroup, TopicPartition
from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.errors import Refused
from strandline_sim.checks.group_history import CommitOutcome
from strandline_sim.checks.history import anomalies
from strandline_sim.checks.member_history import Commit, MemberOperation, member_anomalies, offsets_that_went_back

if TYPE_CHECKING:
    from harness.run import Run

GROUP, TOPIC, PARTITIONS = "workers", "jobs", 9
HALF = "cli1"
"""The namespace in which every second member lives."""
SESSION_MS = 6_000
REBALANCE_MS = 10_000
_PRODUCER = "producer"
_RECORD_EVERY_S = 0.01
_STARTED_S = 60.0
_STOPPED_S = 60.0
_LOOK_EVERY_S = 0.05
_ASK_EVERY_S = 0.1
_ASK_MS = 2_000
_SHOWN_OF_A_KIND = 3


class AwaitedCommit(NamedTuple):
    """Somebody's commit that is sent after ``since_s`` must be acknowledged in time."""

    why: str
    since_s: float
    within_s: float


@dataclass(slots=True, eq=False)
class Group:
    """The group of one run. Times are seconds of the machine's monotonic clock."""

    run: Run
    slots: int
    awaited: list[AwaitedCommit] = field(default_factory=list)
    _members: dict[int, ClientProcess] = field(default_factory=dict)
    _lives: Counter[int] = field(default_factory=Counter)
    _histories: dict[Path, int] = field(default_factory=dict)
    """Each member's file, and how far it was read."""
    _ended: list[tuple[float, TopicPartition]] = field(default_factory=list)
    """When acknowledged commits ended."""
    _producer: ClientProcess | None = None
    _asking: asyncio.Task[None] | None = None
    _has_caught_up: bool = False
    """Whether everything was worked on; if not, that alone is what is wrong."""
    _is_closed: bool = False

    async def start(self) -> None:
        """Makes the topic, and returns when every member has joined, and the producer and the asking run."""
        run = self.run
        run.stack.push_async_callback(self.close)
        await run.probe.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        self._producer = ClientProcess(_PRODUCER, run.directory / f"{_PRODUCER}.log")
        wanted: dict[str, Any] = {
            "producers": {"jobs": {"topic": TOPIC, "acks": -1, "pause_s": _RECORD_EVERY_S}},
            "consumers": [],
            "seekers": [],
            "stale": None,
            "asks_ends": False,
            "bootstrap": run.cluster.bootstrap,
            "topics": {TOPIC: PARTITIONS},
            "tls": {},
            "seed": run.seed,
            "history": str(self._sends),
        }
        await self._producer.start(run.cluster.namespaces, "cli0", "load_worker.py", wanted)
        await self._producer.hear("running", _STARTED_S)
        await asyncio.gather(*map(self.begin, range(self.slots)))
        self._asking = asyncio.create_task(self._ask_forever())

    @property
    def _processes(self) -> list[ClientProcess]:
        return [*self._members.values(), *([self._producer] if self._producer is not None else [])]

    @property
    def _sends(self) -> Path:
        return self.run.directory / f"history-{_PRODUCER}.jsonl"

    @property
    def _fetches(self) -> Path:
        return self.run.directory / "history-asked.jsonl"

    async def begin(self, slot: int) -> None:
        """Starts a member, unless it runs or the run is over; returns when it has subscribed."""
        known = self._members.get(slot)
        if self._is_closed or (known is not None and known.running):
            return
        self._lives[slot] += 1
        name = f"m{slot}.{self._lives[slot]}"
        history = self.run.directory / f"history-{name}.jsonl"
        history.touch()
        self._histories[history] = 0
        self._members[slot] = member = ClientProcess(name, self.run.directory / f"{name}.log")
        wanted = {
            "member": name,
            "group": GROUP,
            "topic": TOPIC,
            "history": str(history),
            "bootstrap": self.run.cluster.bootstrap,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
        }
        await member.start(self.run.cluster.namespaces, HALF if slot % 2 else "cli0", "member_worker.py", wanted)
        await member.hear("running", _STARTED_S)

    def member(self, slot: int) -> ClientProcess:
        """The process of a slot's present member."""
        return self._members[slot]

    async def coordinator(self) -> int:
        """The node that the living nodes name as the group's coordinator."""
        return await coordinator(self.run, coordinated_group(GROUP))

    async def coordinator_epoch(self) -> int:
        """The leader epoch of the partition whose leader coordinates the group."""
        return await coordinator_epoch(self.run, coordinated_group(GROUP))

    async def in_sync(self) -> None:
        """Waits until every replica of what the group reads and of its coordinator's log is in its ISR."""
        await self.run.probe.in_sync(TOPIC)
        await self.run.probe.in_sync(GROUP_STATE)

    def expect_commits(self, why: str, since_s: float, within_s: float) -> None:
        """Of the commits sent from ``since_s`` on, one must be acknowledged in time; judged at the end."""
        self.awaited.append(AwaitedCommit(why, since_s, within_s))

    async def commits(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Waits for ``count`` more acknowledged commits.

        Raises:
            AssertionError: they did not come in time.
        """
        since_s = time.monotonic()
        while sum(at_s > since_s for at_s, _ in self._look()) < count:
            assert time.monotonic() < since_s + timeout_s, f"not {count} commits within {timeout_s:g} s"
            await asyncio.sleep(_LOOK_EVERY_S)

    def _look(self) -> list[tuple[float, TopicPartition]]:
        for path, position in self._histories.items():
            lines, self._histories[path] = new_lines(path, position)
            for line in lines:
                if line.startswith(b'["committed"'):
                    _, at_s, _, _, topic, partition, outcome = json.loads(line)
                    if outcome == CommitOutcome.DONE:
                        self._ended.append((at_s, TopicPartition(topic, partition)))
        return self._ended

    async def _ask_forever(self) -> None:
        """OffsetFetch all the time; an answer that did not come proves nothing."""
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        history = GroupHistoryWriter(self._fetches)
        try:
            async with Admin(self.run.cluster.bootstrap, timeout_ms=_ASK_MS) as admin:
                while True:
                    asked_s = time.monotonic()
                    with suppress(Refused, ConnectionError, TimeoutError, grpc.aio.AioRpcError):
                        for tp, one in (await admin.list_group_offsets(GROUP, partitions)).items():
                            serial, offset = (None, None) if one is None else (one.metadata, one.offset)
                            history.fetched(asked_s, tp, serial, offset)
                    await asyncio.sleep(_ASK_EVERY_S)
        finally:
            history.close()

    async def stable(self, timeout_s: float) -> float:
        """Waits until all are members, the group is stable, and each partition is read by one; the seconds it took.

        Raises:
            AssertionError: not in time; with what the coordinator said last.
        """
        began_s = time.monotonic()
        said = "nobody was asked"
        async with Admin(self.run.cluster.bootstrap, timeout_ms=_ASK_MS) as admin:
            while time.monotonic() < began_s + timeout_s:
                try:
                    (group,) = await admin.describe_groups([GROUP])
                except (Refused, ConnectionError, TimeoutError, grpc.aio.AioRpcError) as error:
                    said = str(error)
                else:
                    said = _unsettled(group, self.slots)
                if not said:
                    return time.monotonic() - began_s
                await asyncio.sleep(_LOOK_EVERY_S)
        raise AssertionError(f"the group was not stable within {timeout_s:g} s: {said}")

    async def finish(self, timeout_s: float) -> None:
        """Ends the producer, waits until the group has committed up to every end, and lets the members leave.

        Raises:
            AssertionError: the lag did not become 0 in time, or a process failed.
        """
        assert self._producer is not None and self._asking is not None
        assert not self._asking.done(), f"nobody asks any more: {self._asking.exception()}"
        await self._producer.tell({"stop": True})
        await self._producer.hear("produced", _STOPPED_S)
        try:
            self.run.measured["lag_gone_s"] = round(await self._caught_up(timeout_s), 1)
            self._has_caught_up = True
            # The answers that show the last commits.
            await asyncio.sleep(3 * _ASK_EVERY_S)
        finally:
            await asyncio.gather(*(each.tell({"stop": True}) for each in self._members.values()))
            await asyncio.gather(*(each.hear("done", _STOPPED_S) for each in self._members.values()))
            await asyncio.gather(*(each.ended() for each in self._members.values()))
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _caught_up(self, timeout_s: float) -> float:
        began_s = time.monotonic()
        async with Admin(self.run.cluster.bootstrap, timeout_ms=_ASK_MS) as admin:

            async def look() -> bool:
                with suppress(Refused, TimeoutError):
                    ends = await admin.list_offsets(TOPIC)
                    committed = await admin.list_group_offsets(GROUP)
                    reached = {tp.partition: one.offset for tp, one in committed.items() if one is not None}
                    return all(reached.get(index, 0) == found.offset for index, found in ends.items())
                return False

            await until(look, f"the group has committed everything in {TOPIC}", timeout_s=timeout_s)
        return time.monotonic() - began_s

    def judge(self) -> None:
        """Everything that members, the producer and the one who asked wrote down, against the invariants."""
        asked = [self._fetches] if self._fetches.exists() else []
        history = member_operations([*self._histories, *asked], GROUP)
        sends = operations([self._sends], [TOPIC], frozenset())
        unread = () if self._has_caught_up else range(PARTITIONS)
        found = [
            *anomalies([*sends, *member_reads(self._histories, TOPIC)], unreadable=unread),
            *member_anomalies(history),
            *offsets_that_went_back(history),
        ]
        shown: Counter[str] = Counter()
        for anomaly in found:
            shown[anomaly.name] += 1
            self.run.check(shown[anomaly.name] > _SHOWN_OF_A_KIND, f"{anomaly.name}: {anomaly.sentence}")
        for name, count in shown.items():
            more = count - _SHOWN_OF_A_KIND
            self.run.check(more <= 0, f"{name}: and {more} more")
        for process in self._processes:
            self.run.check(not process.death, process.death)
        self.run.counters += _counted(history)
        self._judge_commits(history)

    def _judge_commits(self, history: list[MemberOperation]) -> None:
        done = sorted(
            (each.invoked_us / 1e6, each.completed_us / 1e6)
            for each in history
            if isinstance(each, Commit) and each.outcome is CommitOutcome.DONE and each.completed_us is not None
        )
        gaps = []
        for why, since_s, within_s in self.awaited:
            first_s = min((end_s for sent_s, end_s in done if sent_s >= since_s), default=float("inf"))
            gaps.append(first_s - since_s)
            sentence = f"{why}: no commit was acknowledged for {gaps[-1]:.1f} s, {within_s:g} s allowed"
            self.run.check(gaps[-1] <= within_s, sentence)
        if gaps:
            self.run.measured["commits_away_max_s"] = round(max(gaps), 2)
            self.run.measured["commits_away_median_s"] = round(sorted(gaps)[len(gaps) // 2], 2)

    async def close(self) -> None:
        """Ends every process that still runs."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        for process in self._processes:
            await process.kill()


def _unsettled(group: DescribedGroup, members: int) -> str:
    """What keeps a group from being stable; empty if nothing does."""
    held = [tp for member in group.members for tp in member.assignment]
    if group.state != "Stable" or len(group.members) != members:
        return f"it is {group.state} with {len(group.members)} members"
    wanted = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    return "" if sorted(held) == wanted else f"its members hold {sorted(held)}"


def _counted(history: list[MemberOperation]) -> Counter[str]:
    """How often members did what; the names are those that a scenario's ``demands`` use."""
    found = Counter(f"members_{type(each).__name__.lower()}" for each in history)
    found["commits"] = sum(isinstance(each, Commit) and each.outcome is CommitOutcome.DONE for each in history)
    return found
