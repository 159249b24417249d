"""Measures a group of a thousand members: until all are stable, until a dead one's partition moved, what heartbeats
cost the coordinator, and how long a commit waits when the coordinator's node is killed.

Members are in this process and do nothing but send heartbeats.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench import Bench, Row
from child import in_loop
from clusters import back_row, back_s, cluster, coordinator_of, names_beside, until
from machine_time import cpu_ms
from report import size_row

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin, Consumer
from strandline.client.cluster.metadata import Cluster
from strandline.client.groups.coordinator import ATTEMPT_MS, GroupCoordinator, passes_by, verdict_of
from strandline.client.groups.member import Confirmed, Member, MemberTerms, Subscription
from strandline.client.groups.membership import heartbeat_request
from strandline.core import types
from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.errors import Refused

SESSION_MS, BEAT_MS, DEFAULT_SESSION_MS = 6_000, 2_000, 45_000
MOST_JOINING_S, MOST_MOVING_S, MOST_PERCENT = 10.0, (SESSION_MS + BEAT_MS) / 1000 + 1, 10.0
MOST_MEDIAN_S, MOST_LONGEST_S = 1.0, 3.0
"""Of a commit after a kill: the median with as many keys as members, the longest with a hundred times as many."""
TOPIC, MINE = "many", "kept-0"
_RETRY_S = 0.1


def rows(bench: Bench) -> Iterator[Row]:
    """Members first, then kills."""
    count = bench.plan.members
    with cluster(bench.directory / "groups") as running:
        bench.say(f"groups: {count} members")
        yield from in_loop(_members(running, count, 2 * bench.plan.sample_s))
        for keys in (count, 100 * count):
            bench.say(f"groups: kills of a coordinator with {keys:,} keys")
            times = in_loop(_commits_back(running, keys, count, bench.plan.kills))
            judged = ("longest", MOST_LONGEST_S) if keys > count else ("median", MOST_MEDIAN_S)
            yield back_row(f"{keys:,} keys, the next commit acknowledged", times, *judged)


async def _members(running: LocalCluster, count: int, sample_s: float) -> list[dict[str, Any]]:
    """All join; one is killed; then as many at the default interval are watched."""
    async with Admin(running.bootstrap, timeout_ms=60_000) as admin:
        await admin.create_topic(TOPIC, partitions=count, replication_factor=3)
        view = Cluster(running.bootstrap)
        await view.start()
        try:
            crowd = Crowd(view, "crowd", count, SESSION_MS)
            began = time.monotonic()
            crowd.begin()
            await crowd.until_stable(admin)
            joined_s = time.monotonic() - began
            began = time.monotonic()
            crowd.kill(count // 2)
            await crowd.until_all_owned()
            moved_s = time.monotonic() - began
            await crowd.close()
            slow = Crowd(view, "slow", count, DEFAULT_SESSION_MS)
            beats_per_s, percent = await _heartbeats(running, admin, slow, sample_s)
        finally:
            await view.close()
    beats = f"{beats_per_s:.0f} heartbeats/s at the default interval, at the coordinator"
    joined = f"{count:,} members of {count:,} partitions, all stable"
    moved = f"one member killed, its partition with another (session {SESSION_MS // 1000} s)"
    most = f"{MOST_PERCENT:.0f} % of a core"
    return [
        size_row(joined, f"{joined_s:.1f} s", f"{MOST_JOINING_S:.0f} s", joined_s < MOST_JOINING_S),
        size_row(moved, f"{moved_s:.1f} s", f"{MOST_MOVING_S:.0f} s", moved_s < MOST_MOVING_S),
        size_row(beats, f"{percent:.1f} %", most, percent <= MOST_PERCENT),
    ]


async def _heartbeats(running: LocalCluster, admin: Admin, crowd: Crowd, for_s: float) -> tuple[float, float]:
    """Heartbeats per second, and the percent of a core that the coordinator uses for them."""
    before = await _coordinator_percent(running, admin, crowd.group_id, for_s)
    crowd.begin()
    await crowd.until_stable(admin)
    settled = crowd.heartbeats
    # Each says once more what it holds, and then only that it lives.
    await until(lambda: crowd.heartbeats >= settled + 2 * len(crowd.members))
    beats, began = crowd.heartbeats, time.monotonic()
    spent = await _coordinator_percent(running, admin, crowd.group_id, for_s)
    rate = (crowd.heartbeats - beats) / (time.monotonic() - began)
    await crowd.close()
    return rate, spent - before


async def _coordinator_percent(running: LocalCluster, admin: Admin, group_id: str, for_s: float) -> float:
    """Of one core, what the group's coordinator uses."""
    pid = running.nodes[await coordinator_of(admin, GROUP_STATE, group_id)].pid
    assert pid is not None, "it runs"
    before, began = cpu_ms(pid), time.monotonic()
    await asyncio.sleep(for_s)
    return (cpu_ms(pid) - before) / (time.monotonic() - began) / 10


async def _commits_back(running: LocalCluster, keys: int, partitions: int, times: int) -> list[float]:
    """Seconds from the kill of the coordinator's node to the next commit that is acknowledged, after each of several
    kills; its shard holds ``keys`` committed offsets."""
    async with Admin(running.bootstrap, timeout_ms=60_000) as admin:
        for name in [MINE, *await names_beside(admin, GROUP_STATE, MINE, keys // partitions - 1)]:
            await admin.alter_group_offsets(name, {(TOPIC, index): 1 for index in range(partitions)})
        found = []
        async with Consumer(running.bootstrap, group=MINE, auto_commit=False) as consumer:
            for number in range(times):
                commit = partial(consumer.commit, {(TOPIC, 0): number})
                await commit()
                found.append(await back_s(running, admin, GROUP_STATE, MINE, commit))
    return found


class Crowd:
    """Members of one group; ``owned`` is what those whose lease runs may work on."""

    def __init__(self, view: Cluster, group_id: str, count: int, session_ms: int) -> None:
        self.group_id = group_id
        self.heartbeats = 0
        self._view = view
        self._coordinator = GroupCoordinator(view, group_id)
        terms = {"instance_id": None, "rack": None, "assignor": "uniform"}
        times = {"session_timeout_ms": session_ms, "rebalance_timeout_ms": 60_000}
        self.members = [
            Member(MemberTerms(member_id=f"member-{number:04}", **terms, **times), Subscription((TOPIC,)))
            for number in range(count)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """All join at once."""
        self._tasks = [asyncio.create_task(self._live(member)) for member in self.members]

    def kill(self, number: int) -> None:
        """One falls silent."""
        self._tasks[number].cancel()
        self.members[number] = Member(self.members[number].terms, Subscription())

    async def close(self) -> None:
        """All fall silent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until_all_owned(self) -> None:
        """Each partition has an owner, and there are as many as members."""
        await until(lambda: len(self.owned()) == len(self.members))

    async def until_stable(self, admin: Admin) -> None:
        """The same, and no more moves: the first member that joins owns them all."""

        async def is_stable() -> bool:
            return bool((await admin.describe_groups([self.group_id]))[0].state.upper() == "STABLE")

        await self.until_all_owned()
        await until(is_stable)

    def owned(self) -> set[types.TopicPartition]:
        """What the members may work on. A member that was not answered for a session does not know yet that its
        partitions are given to others, but its lease is over (G22).

        Raises:
            AssertionError: two members own one partition.
        """
        found: set[types.TopicPartition] = set()
        now_ms = time.monotonic() * 1000
        for member in self.members:
            if member.has_lease(now_ms):
                assert found.isdisjoint(member.owned), "two members own one partition"
                found |= member.owned
        return found

    async def _live(self, member: Member) -> None:
        while True:
            sent, sent_ms = member.heartbeat(), time.monotonic() * 1000
            request = heartbeat_request(self._view, self._coordinator, member.terms, sent)
            try:
                answer = await self._coordinator.ask_once(
                    lambda to: to.ConsumerGroupHeartbeat, request, verdict_of, deadline_ms=ATTEMPT_MS
                )
            except Refused as refused:
                if passes_by(refused.refusal):
                    member.unanswered()
                else:
                    member.rejected(refused.refusal.code)
                await asyncio.sleep(_RETRY_S)
                continue
            self.heartbeats += 1
            assigned = None
            if answer.HasField("assignment"):
                topics = answer.assignment.topics
                assigned = frozenset(types.TopicPartition(row.topic_id, n) for row in topics for n in row.partitions)
            said = Confirmed(answer.member_epoch, answer.heartbeat_interval_ms, answer.session_timeout_ms, assigned)
            moves = member.confirmed(sent, sent_ms, said)
            if moves.revoked:
                member.given_up(moves.revoked)
            if not member.has_news:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
