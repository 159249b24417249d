"""Cases 2 and 3 as they are played: what was done to the cluster, by which clock, and what must follow from it.

Invariant: the expected values come from what the test did and from the leaders at that time, never from the events that
are checked against them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from container_case import Case, case
from container_cluster import LAG_S, NODES, ContainerCluster
from running_cluster import until

_AHEAD_S = 1.5
"""Far below session and lag: a pause of this length changes nothing but how far the leader is ahead."""

Removal = tuple[int, int, str]
"""(partition, replica, cause)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One case: its topic, and what must be found in its events."""

    topic: str
    topic_id: str
    removals: Counter[Removal]
    """Every one of them is a shrink of its own, and is followed by one expand."""
    failovers: dict[int, float]
    """By partition that lost its leader: seconds from the fault to the first acknowledgement by the new one."""
    limit_s: float
    """What each of them may take at most on this machine."""
    elected: dict[int, float]
    """Likewise: seconds from the fault until the controller reported that somebody else leads."""
    truncated: int
    """Records that replicas cut off, by the events in their data directories."""
    changes: Counter[Removal]
    """Removals by the events in the data directories."""
    expands: int
    last: dict[tuple[int, int], int]
    """By node and incarnation, the controller being -1: the number of its last event about the ISR or an epoch."""


async def killed_leader(cluster: ContainerCluster, directory: Path) -> Played:
    """Case 2: the leader of partition 0 is killed under load while it is ahead; later it is started again."""
    async with case(cluster, "killed-leader", directory) as run:
        before = (await run.probe.topic(run.load.strict)).partitions
        leader = run.leaders(before)[0]
        followers = [node for node in NODES if node != leader]
        # Together and without delay: a follower paused for a session's length would be fenced instead.
        await asyncio.gather(*(run.do(cluster.pause, node) for node in followers))
        await _ahead(run, leader)
        killed_s = time.monotonic()
        await run.do(cluster.kill, leader)
        await asyncio.gather(*(run.do(cluster.resume, node) for node in followers))
        lost = [each.partition_index for each in before if each.leader_id == leader]
        elected = {index: await _elected(run, index, leader, killed_s) for index in lost}
        await run.load.acked(5)
        failovers = {index: run.load.acks_since(killed_s)[index][0] - killed_s for index in lost}
        await run.do(cluster.start_again, leader)
        await run.settle()
        return await _reported(
            run,
            removals=Counter({(each.partition_index, leader, "node_fenced"): 1 for each in before}),
            failovers=failovers,
            limit_s=run.limit_s(killed_s),
            elected=elected,
        )


async def _ahead(run: Case, leader: int) -> None:
    """Waits until the leader's log holds records that no follower has."""
    begun = (await run.probe.replica(run.load.strict, leader)).leo

    async def look() -> bool:
        now = await run.probe.replica(run.load.strict, leader)
        return now.leo > max(now.hw, begun)

    await until(look, f"node {leader} is ahead of its followers", timeout_s=_AHEAD_S)


async def lagging_follower(cluster: ContainerCluster, directory: Path) -> Played:
    """Case 3: a follower is cut from its leader alone, heals, then is paused until its session has ended."""
    async with case(cluster, "lagging-follower", directory) as run:
        before = (await run.probe.topic(run.load.strict)).partitions
        leaders = run.leaders(before)
        leader = leaders[0]
        follower = next(node for node in NODES if node != leader)
        # A cut has two ends: partitions that the follower leads itself lose the other node.
        parted = {index: follower for index, node in leaders.items() if node == leader}
        parted |= {index: leader for index, node in leaders.items() if node == follower}
        await run.do(cluster.cut, leader, follower)
        for index, node in parted.items():
            await _until_out(run, index, node)
        await run.load.acked(5)
        assert not await run.probe.is_fenced(follower)
        await run.do(cluster.mend, leader, follower)
        await run.probe.in_sync(run.load.strict)

        paused_s = time.monotonic()
        await run.do(cluster.pause, follower)
        led = [index for index, node in leaders.items() if node == follower]
        elected = {index: await _elected(run, index, follower, paused_s) for index in led}
        for index in leaders:
            await _until_out(run, index, follower)
        await run.load.acked(5)
        failovers = {index: run.load.acks_since(paused_s)[index][0] - paused_s for index in led}
        await run.do(cluster.resume, follower)
        await run.settle()
        removals = Counter({(index, node, "lag"): 1 for index, node in parted.items()})
        removals.update({(index, follower, "node_fenced"): 1 for index in leaders})
        limit_s = run.limit_s(paused_s)
        return await _reported(run, removals=removals, failovers=failovers, limit_s=limit_s, elected=elected)


async def _elected(run: Case, index: int, before: int, since_s: float) -> float:
    """Waits until the controller reports another leader; returns the seconds since the fault."""
    await run.probe.leader(run.load.strict, index, other_than=before)
    return time.monotonic() - since_s


async def _until_out(run: Case, index: int, node: int) -> None:
    async def look() -> bool:
        return node not in (await run.probe.partition(run.load.strict, index)).isr

    await until(look, f"node {node} is out of the ISR of partition {index}", timeout_s=3 * LAG_S)


async def _reported(
    run: Case, *, removals: Counter[Removal], failovers: dict[int, float], limit_s: float, elected: dict[int, float]
) -> Played:
    """The case with the events of the data directories, once the last expand is written."""
    grown = await run.until_event(
        "ISR_CHANGE", removals.total(), lambda row: len(row["new_isr"]) > len(row.get("old_isr") or row["new_isr"])
    )
    changes = run.events("ISR_CHANGE")
    shrunk = Counter(
        (row["partition"], node, row["cause"])
        for row in changes
        if row["node_id"] == -1
        for node in set(row.get("old_isr") or ()) - set(row["new_isr"])
    )
    last: dict[tuple[int, int], int] = {}
    for row in [*changes, *run.events("EPOCH_START")]:
        emitter = (row["node_id"], row["incarnation"])
        last[emitter] = max(row["seq"], last.get(emitter, 0))
    return Played(
        topic=run.load.strict,
        topic_id=run.topic_ids[run.load.strict],
        removals=removals,
        failovers=failovers,
        limit_s=limit_s,
        elected=elected,
        truncated=sum(row["from_leo"] - row["to_leo"] for row in run.events("TRUNCATION")),
        changes=shrunk,
        expands=len({(row["partition"], row["partition_epoch"]) for row in grown if row["node_id"] == -1}),
        last=last,
    )
