"""A consumer group under faults: members that work on a topic, and a client that asks what is committed."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from harness import members
from harness.history_file import new_lines, operations
from harness.member_history_file import GroupHistoryWriter, member_operations, member_reads

from strandline.client import Admin, DescribedGroup, TopicPartition
from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.errors import Refused
from strandline_sim.checks.group_history import (
    CommitOutcome,
    MemberOperation,
    OffsetCommitted,
    member_anomalies,
    offsets_that_went_back,
)
from strandline_sim.checks.history import anomalies

if TYPE_CHECKING:
    from harness.run import Run

GROUP, TOPIC, PARTITIONS = "workers", "jobs", 9
_ASK_EVERY_S = 0.1
_ASK_MS = 2_000


class AwaitedCommit(NamedTuple):
    """A commit that is sent after ``since_s`` must be acknowledged in time."""

    why: str
    since_s: float
    within_s: float


class Group(members.Members):
    """The group of one run."""

    group, topic, partitions, letter, script, record_every_s = GROUP, TOPIC, PARTITIONS, "m", "member_worker.py", 0.01

    def __init__(self, run: Run, slots: int) -> None:
        super().__init__(run, slots)
        self.awaited: list[AwaitedCommit] = []
        self._ended: list[tuple[float, TopicPartition]] = []
        """When acknowledged commits ended."""
        self._fetches = run.directory / "history-asked.jsonl"
        self._asking: asyncio.Task[None] | None = None
        self._has_caught_up = False
        """Whether everything was worked on; if not, that alone is what is wrong."""

    def wanted(self, slot: int, name: str) -> dict[str, Any]:
        return {"topic": TOPIC}

    async def start(self) -> None:
        """Makes the topic, and returns when every member has joined, and the producer and the asking run."""
        await self.run.probe.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        await self.start_producer()
        await asyncio.gather(*map(self.begin, range(self.slots)))
        self._asking = asyncio.create_task(self._ask_forever())

    async def in_sync(self) -> None:
        """Waits until every replica of what the group reads and of its coordinator's log is in its ISR."""
        await self.run.probe.in_sync(TOPIC)
        await self.run.probe.in_sync(GROUP_STATE)

    def expect_commits(self, why: str, since_s: float, within_s: float) -> None:
        """One of the commits sent from ``since_s`` on must be acknowledged in time; judged at the end."""
        self.awaited.append(AwaitedCommit(why, since_s, within_s))

    async def commits(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Waits for ``count`` more acknowledged commits.

        Raises:
            AssertionError: they did not come in time.
        """
        since_s = time.monotonic()
        while sum(at_s > since_s for at_s, _ in self._look()) < count:
            assert time.monotonic() < since_s + timeout_s, f"not {count} commits within {timeout_s:g} s"
            await asyncio.sleep(members.LOOK_EVERY_S)

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
        said = "no coordinator was asked"
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
                await asyncio.sleep(members.LOOK_EVERY_S)
        raise AssertionError(f"the group was not stable within {timeout_s:g} s: {said}")

    async def finish(self, timeout_s: float) -> None:
        """Ends the producer, waits until the group has committed up to every end, and lets the members leave.

        Raises:
            AssertionError: the lag did not become 0 in time, or a process failed.
        """
        assert self._asking is not None
        assert not self._asking.done(), f"the client that asks has ended: {self._asking.exception()}"
        await self.stop_producer()
        try:
            async with Admin(self.run.cluster.bootstrap, timeout_ms=_ASK_MS) as admin:
                await self.caught_up(admin, timeout_s)
            self._has_caught_up = True
            # The answers that show the last commits.
            await asyncio.sleep(3 * _ASK_EVERY_S)
        finally:
            await self.leave()
            await self._ask_no_more()

    async def _ask_no_more(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def judge(self) -> None:
        """Everything that members, the producer and the one who asked wrote down, against the invariants."""
        asked = [self._fetches] if self._fetches.exists() else []
        history = member_operations([*self._histories, *asked], GROUP)
        sends = operations([self._sends], [TOPIC], frozenset())
        unread = () if self._has_caught_up else range(PARTITIONS)
        found = anomalies([*sends, *member_reads(self._histories, TOPIC)], unreadable=unread)
        self.show([*found, *member_anomalies(history), *offsets_that_went_back(history)])
        self.run.counters += _counted(history)
        self._judge_commits(history)

    def _judge_commits(self, history: list[MemberOperation]) -> None:
        done = sorted(
            (each.invoked_us / 1e6, each.completed_us / 1e6)
            for each in history
            if isinstance(each, OffsetCommitted)
            and each.outcome is CommitOutcome.DONE
            and each.completed_us is not None
        )
        gaps = []
        for why, since_s, within_s in self.awaited:
            first_s = min((end_s for sent_s, end_s in done if sent_s >= since_s), default=float("inf"))
            gaps.append(first_s - since_s)
            sentence = f"{why}: no commit was acknowledged for {gaps[-1]:.1f} s, {within_s:g} s allowed"
            self.run.check(gaps[-1] <= within_s, sentence)
        self.measure(gaps)

    async def close(self) -> None:
        await self._ask_no_more()
        await super().close()


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
    found["commits"] = sum(isinstance(each, OffsetCommitted) and each.outcome is CommitOutcome.DONE for each in history)
    return found
