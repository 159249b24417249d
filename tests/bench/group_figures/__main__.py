"""`make bench WHAT=groups`: a thousand members, what their heartbeats cost, and what reading through a group costs.

Keeps a block for docs/BENCHMARKS.md. Bounded in quantities; some minutes; loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from group_figures.members import Crowd
from kept import DOCS, keep, measured_commit
from machine_time import cpu_ms

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import Admin, Consumer, DescribedTopic, NewRecord, Producer, encode_batch
from strandline.client.cluster.metadata import Cluster
from strandline.core.coordinator.internal_topics import GROUP_STATE, partition_of

SESSION_MS, BEAT_MS = 6_000, 2_000
WAIT_S = 120.0
RECORD, RECORDS_PER_BATCH = 1_024, 63
READ_PARTITIONS = 6


class Members(NamedTuple):
    """Figures of one group of many members; seconds, and percent of one core."""

    joined_s: float
    moved_s: float
    beats_per_s: float
    coordinator_percent: float


class Round(NamedTuple):
    """One reading of everything: CPU of all processes and answers of fetches."""

    ms_per_mb: float
    answers_per_batch: float


async def many_members(cluster: LocalCluster, count: int, measured_s: float) -> Members:
    """All join; one is killed; then as many at the default interval are watched."""
    async with Admin(cluster.bootstrap, timeout_ms=60_000) as admin:
        await admin.create_topic("many", partitions=count, replication_factor=3)
        view = Cluster(cluster.bootstrap)
        await view.start()
        try:
            crowd = Crowd(view, "crowd", "many", count, SESSION_MS)
            began = time.monotonic()
            crowd.begin()
            joined_s = await _until(lambda: len(crowd.owned()) == count, began)
            joined_s = max(joined_s, await _stable(admin, "crowd", began))
            began = time.monotonic()
            crowd.kill(count // 2)
            moved_s = await _until(lambda: len(crowd.owned()) == count, began)
            await crowd.close()
            slow = Crowd(view, "slow", "many", count, 45_000)
            before = await _coordinator_percent(cluster, admin, "slow", measured_s)
            slow.begin()
            await _until(lambda: len(slow.owned()) == count, time.monotonic())
            await _steady(admin, slow)
            beats, began = slow.heartbeats, time.monotonic()
            spent = await _coordinator_percent(cluster, admin, "slow", measured_s)
            rate = (slow.heartbeats - beats) / (time.monotonic() - began)
            await slow.close()
        finally:
            await view.close()
    return Members(joined_s, moved_s, rate, spent - before)


async def _until(condition: Callable[[], bool], began: float) -> float:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is state, not an event
            await asyncio.sleep(0.02)
    return time.monotonic() - began


async def _stable(admin: Admin, group_id: str, began: float) -> float:
    async with asyncio.timeout(WAIT_S):
        while (await admin.describe_groups([group_id]))[0].state.upper() != "STABLE":  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _steady(admin: Admin, crowd: Crowd) -> None:
    """Until heartbeats change nothing. That all partitions have owners says little: the first member that joins owns
    them all, and 1,000 members that join and are rebalanced write thousands of records."""
    await _stable(admin, crowd.group_id, time.monotonic())
    settled = crowd.heartbeats
    # Each says once more what it holds, and then only that it lives.
    await _until(lambda: crowd.heartbeats >= settled + 2 * len(crowd.members), time.monotonic())


async def _coordinator_percent(cluster: LocalCluster, admin: Admin, group_id: str, for_s: float) -> float:
    """Of one core, what the group's coordinator uses."""
    (topic,) = await admin.describe_topics([GROUP_STATE])
    leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
    assert leader is not None, "somebody coordinates the group"
    pid = cluster.nodes[leader].pid
    assert pid is not None, "it runs"
    before, began = cpu_ms(pid), time.monotonic()
    await asyncio.sleep(for_s)
    return (cpu_ms(pid) - before) / (time.monotonic() - began) / 10


async def commits_back(cluster: LocalCluster, keys: int, partitions: int, times: int) -> list[float]:
    """Seconds from the kill of the coordinator's node to the next commit that is acknowledged, after each of several
    kills; its shard holds ``keys`` committed offsets."""
    async with Admin(cluster.bootstrap, timeout_ms=60_000) as admin:
        (topic,) = await admin.describe_topics([GROUP_STATE])
        shard = partition_of("kept-0", len(topic.partitions))
        names = (name for number in itertools.count() if _is_in(name := f"kept-{number}", shard, topic))
        for _ in range(keys // partitions):
            await admin.alter_group_offsets(next(names), {("many", index): 1 for index in range(partitions)})
        found = []
        async with Consumer(cluster.bootstrap, group="kept-0", auto_commit=False) as consumer:
            for number in range(times):
                await consumer.commit({("many", 0): number})
                (topic,) = await admin.describe_topics([GROUP_STATE])
                leader = topic.partitions[shard].leader
                assert leader is not None, "somebody coordinates the group"
                began = time.monotonic()
                cluster.kill_node(leader)
                await consumer.commit({("many", 0): number})
                found.append(time.monotonic() - began)
                await cluster.start_node(leader)
                await _in_sync(admin, len(cluster.node_ids))
    return found


def _is_in(group_id: str, shard: int, topic: DescribedTopic) -> bool:
    return partition_of(group_id, len(topic.partitions)) == shard


async def _in_sync(admin: Admin, nodes: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while any(  # noqa: ASYNC110 - what is waited for is state, not an event
            len(one.isr) < nodes for topic in await admin.describe_topics() for one in topic.partitions
        ):
            await asyncio.sleep(0.5)


async def reading(cluster: LocalCluster, megabytes: int, rounds: int) -> tuple[list[Round], list[Round]]:
    """Everything is read in turn by `assign` and as the only member of a group; a pair of rounds each time."""
    batches = await _fill(cluster.bootstrap, megabytes)
    alone: list[Round] = []
    grouped: list[Round] = []
    await _read(cluster, None, batches)
    for number in range(rounds):
        pair = [(alone, None), (grouped, f"reading-{number}")]
        for into, group in pair if number % 2 == 0 else reversed(pair):
            into.append(await _read(cluster, group, batches))
    return alone, grouped


async def _fill(bootstrap: str, megabytes: int) -> int:
    async with Admin(bootstrap) as admin:
        await admin.create_topic("read", partitions=READ_PARTITIONS, replication_factor=3)
    batch = encode_batch([NewRecord(None, bytes(RECORD), 1)] * RECORDS_PER_BATCH)
    count = megabytes * 1_000_000 // len(batch)
    async with Producer(bootstrap) as producer:
        sent = [await producer.send_encoded("read", number % READ_PARTITIONS, batch) for number in range(count)]
        await asyncio.gather(*(one for one in sent))
    return count


async def _read(cluster: LocalCluster, group: str | None, batches: int) -> Round:
    pids = [service.pid for service in (cluster.controller, *cluster.nodes.values()) if service.pid] + [os.getpid()]
    left = batches * RECORDS_PER_BATCH
    async with Consumer(cluster.bootstrap, group=group, auto_offset_reset="earliest") as consumer:
        await (consumer.assign("read") if group is None else consumer.subscribe("read"))
        # To join costs the same however much is read behind it, and is not counted.
        left -= sum(len(fetched.records) for fetched in await consumer.fetch_batches(30_000))
        before, begun = sum(map(cpu_ms, pids)), consumer.stats()
        while left > 0:
            left -= sum(len(fetched.records) for fetched in await consumer.fetch_batches(30_000))
        spent_ms, ended = sum(map(cpu_ms, pids)) - before, consumer.stats()
    megabytes = (ended.bytes_read - begun.bytes_read) / 1_000_000
    return Round(spent_ms / megabytes, (ended.fetch_answers - begun.fetch_answers) / batches)


def block(
    members: Members,
    alone: Sequence[Round],
    grouped: Sequence[Round],
    back: Mapping[int, Sequence[float]],
    commit: str,
    count: int,
) -> str:
    """Figures and verdicts as Markdown; ``back`` by number of keys."""
    cost = [100 * (of.ms_per_mb / by.ms_per_mb - 1) for of, by in zip(grouped, alone, strict=True)]
    more = statistics.median(each.answers_per_batch for each in grouped)
    usual = statistics.median(each.answers_per_batch for each in alone)
    by_assign = statistics.median(each.ms_per_mb for each in alone)
    limit_s = (SESSION_MS + BEAT_MS) / 1000 + 1
    where = f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    rows = [
        (f"{count:,} members of {count:,} partitions, all stable", "10 s", f"{members.joined_s:.1f} s",
         members.joined_s < 10),
        ("one member killed, its partition with another", f"{limit_s:.0f} s", f"{members.moved_s:.1f} s",
         members.moved_s < limit_s),
        (f"{members.beats_per_s:.0f} heartbeats/s at the default interval, at the coordinator", "10 % of a core",
         f"{members.coordinator_percent:.1f} %", members.coordinator_percent <= 10),
        ("CPU ms/MB of all processes, beyond `assign`", "3 %",
         f"{statistics.median(cost):+.1f} % (from {min(cost):+.1f} to {max(cost):+.1f})", statistics.median(cost) <= 3),
        ("answers of fetches per batch, `assign` and group", "no more", f"{usual:.3f} and {more:.3f}",
         more <= usual * 1.01),
    ]  # fmt: skip
    for keys, times in back.items():
        middle, longest = statistics.median(times), max(times)
        is_met = longest < 3 if keys > 1_000 else middle < 1
        rows.append(
            (f"coordinator's node killed with {keys:,} keys, the next commit acknowledged ({len(times)} kills)",
             "longest 3 s" if keys > 1_000 else "median 1 s", f"median {middle:.2f} s, longest {longest:.2f} s", is_met)
        )  # fmt: skip
    return "\n".join(
        [
            "## Groups: a thousand members, and what reading through a group costs",
            "",
            f"Measured at commit {commit} on {datetime.now(UTC).date().isoformat()}; {where}.",
            f"Three nodes on one machine with the members, which share its processors. The first {count:,} have a "
            f"session of {SESSION_MS // 1000} s and send a heartbeat every {BEAT_MS // 1000} s; reading is "
            f"{len(alone)} pairs of rounds in turn, counted from the first records on; CPU is {by_assign:.1f} ms/MB "
            "with `assign`. Heartbeats at the default interval are watched once the group is stable.",
            "",
            "| figure | wanted | measured | |",
            "|---|---|---|---|",
            *(f"| {what} | {wanted} | {got} | {'met' if met else '**missed**'} |" for what, wanted, got, met in rows),
        ]
    )


async def measure(directory: Path, asked: argparse.Namespace, commit: str) -> str:
    """Everything, on one cluster."""
    cluster = LocalCluster(Plan(directory=directory))
    try:
        await cluster.start()
        count: int = asked.members
        alone, grouped = await reading(cluster, asked.megabytes, asked.rounds)
        members = await many_members(cluster, count, asked.seconds)
        back = {keys: await commits_back(cluster, keys, count, asked.kills) for keys in (count, 100 * count)}
        return block(members, alone, grouped, back, commit, count)
    finally:
        cluster.kill()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    parser.add_argument("--dry", action="store_true", help="print the block and keep nothing")
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--megabytes", type=int, default=384)
    # Single pairs differ by ten percent either way, so that the median of 60 is good to one and a half.
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long heartbeats are watched")
    parser.add_argument("--kills", type=int, default=5, help="of the coordinator's node, for each number of keys")
    asked = parser.parse_args(arguments)
    commit = measured_commit()
    directory = Path(tempfile.mkdtemp(prefix="strandline-groups-"))
    try:
        text = asyncio.run(measure(directory, asked, commit))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not asked.dry:
        keep("groups", text, asked.docs)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
