"""What load, idle partitions, idle clients, nodes and elections cost on real clusters of this machine.

Each function measures one cause at several quantities, on a cluster of its own, and stops what it started. Processor
time is of whole processes, counted by the scheduler in ns, so it depends little on how busy the machine is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from machine_time import rss_mib
from parties import Strandline
from plan import Pace, Shape

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.cli.local.processes import Service
from strandline.client import Admin, Consumer
from strandline.rpc.convert.metadata import write_image

PACE = Pace(warm_s=1.0, run_s=4.0)
IDLE_S = 10.0
SETTLE_S = 5.0
ELECTIONS_S = 5.0
CHANGES = 200
STEP_TIMEOUT_S = 120
TOPIC_PARTITIONS = 100
TOPIC = "growth"
DURABILITY = "fsync"


class Load(NamedTuple):
    """One batch of ``kib``: processor time of the leader and of one follower, us."""

    kib: int
    leader_us: float
    follower_us: float


class Idle(NamedTuple):
    """Nothing happens: processor time per second, us, and resident memory, KiB; of data nodes the mean."""

    quantity: int
    controller_us_per_s: float
    node_us_per_s: float
    node_kib: float


class Nodes(NamedTuple):
    """An empty cluster: its nodes idle, the bytes of its encoded state, and the controller's processor time per change
    of a topic, which every node receives, us."""

    idle: Idle
    state_bytes: int
    change_us: float


class Dead(NamedTuple):
    """A node died that led ``partitions``: processor time of the elections beyond what idling costs, us."""

    partitions: int
    controller_us: float
    node_us: float


async def loads(directory: Path, sizes_kib: Sequence[int]) -> AsyncIterator[Load]:
    """Five requests outstanding of each size, acks=all."""
    async with _cluster(directory) as running:
        party = Strandline(running, "stream", DURABILITY)
        for kib in sizes_kib:
            figures = await asyncio.to_thread(party.measure, Shape(kib, 5), PACE)
            spent = figures["cpu_ms_per_mb"]
            assert isinstance(spent, Mapping)
            us_per_batch = kib * 1024 / 1e6 * 1e3
            followers = [ms for name, ms in spent.items() if name.startswith("follower")]
            yield Load(kib, spent["leader"] * us_per_batch, sum(followers) / len(followers) * us_per_batch)


async def idle_partitions(directory: Path, quantities: Sequence[int]) -> AsyncIterator[tuple[Idle, int]]:
    """Partitions with three replicas whose ISRs are whole, and the bytes of the encoded state of the cluster."""
    async with _cluster(directory) as running, Admin(running.bootstrap) as admin:
        made = 0
        for quantity in quantities:
            await _grow(admin, made, quantity)
            made = quantity
            yield await _idle(running, quantity), await _metadata_size(admin)


async def idle_clients(directory: Path, quantities: Sequence[int]) -> AsyncIterator[Idle]:
    """Consumers that wait at the end of one partition, each with connections of its own; measured at its leader."""
    async with _cluster(directory) as running, Admin(running.bootstrap) as admin:
        await _grow(admin, 0, 1)
        leader = next(iter(await _led_by(admin)))
        async with AsyncExitStack() as stack:
            open_ones = 0
            for quantity in quantities:
                for _ in range(quantity - open_ones):
                    consumer = await stack.enter_async_context(Consumer(running.bootstrap))
                    await consumer.assign([TOPIC + "-0"])
                open_ones = quantity
                yield await _idle(running, quantity, only=leader)


async def nodes(directory: Path, quantities: Sequence[int]) -> AsyncIterator[Nodes]:
    """Clusters of so many nodes, with one topic whose settings change."""
    for quantity in quantities:
        async with _cluster(directory / str(quantity), quantity) as running, Admin(running.bootstrap) as admin:
            idle, state_bytes = await _idle(running, quantity), await _metadata_size(admin)
            await _grow(admin, 0, 1)
            before = cpu_us(_pid(running.controller))
            for number in range(CHANGES):
                await admin.alter_topic_configs(TOPIC + "-0", {"retention.ms": str(1_000_000 + number)})
            yield Nodes(idle, state_bytes, (cpu_us(_pid(running.controller)) - before) / CHANGES)


async def elections(directory: Path, quantities: Sequence[int]) -> AsyncIterator[Dead]:
    """Kill the node that leads most partitions; it is started again before the next one."""
    async with _cluster(directory) as running, Admin(running.bootstrap) as admin:
        made = 0
        for quantity in quantities:
            await _grow(admin, made, quantity)
            made = quantity
            yield await _kill(running, admin)


@asynccontextmanager
async def _cluster(directory: Path, nodes: int = 3) -> AsyncIterator[LocalCluster]:
    rules = {"durability": DURABILITY}
    running = LocalCluster(Plan(directory=directory, nodes=nodes, controller_settings=rules, node_settings=rules))
    try:
        await running.start()
        yield running
    finally:
        running.kill()


async def _kill(running: LocalCluster, admin: Admin) -> Dead:
    led = await _led_by(admin)
    victim = max(led, key=lambda node: led[node])
    survivors = [node for node in running.nodes if node != victim]
    await asyncio.sleep(SETTLE_S)
    idle = await _spent(running, survivors, ELECTIONS_S)
    running.kill_node(victim)
    busy = await _spent(running, survivors, ELECTIONS_S)
    if (await _led_by(admin)).get(victim):
        raise SystemExit(f"node {victim} still leads partitions {ELECTIONS_S} s after it was killed")
    await running.start_node(victim)
    await _until_whole(admin)
    await admin.elect_leaders()
    return Dead(led[victim], busy[0] - idle[0], busy[1] - idle[1])


async def _metadata_size(admin: Admin) -> int:
    return int(write_image(await admin._cluster.fetch_image()).ByteSize())


async def _led_by(admin: Admin) -> Counter[int]:
    topics = await admin.describe_topics()
    return Counter(one.leader for topic in topics for one in topic.partitions if one.leader is not None)


async def _grow(admin: Admin, made: int, wanted: int) -> None:
    while made < wanted:
        partitions = min(TOPIC_PARTITIONS, wanted - made)
        await admin.create_topic(f"{TOPIC}-{made}", partitions=partitions, replication_factor=3)
        made += partitions
    await _until_whole(admin)
    await asyncio.sleep(SETTLE_S)


async def _until_whole(admin: Admin) -> None:
    async with asyncio.timeout(STEP_TIMEOUT_S):
        while True:
            topics = await admin.describe_topics()
            parts = [one for topic in topics for one in topic.partitions]
            if all(one.leader is not None and len(one.isr) == len(one.replicas) for one in parts):
                return
            await asyncio.sleep(0.5)


async def _idle(running: LocalCluster, quantity: int, only: int | None = None) -> Idle:
    nodes = [only] if only is not None else list(running.nodes)
    await asyncio.sleep(SETTLE_S)
    controller_us, node_us = await _spent(running, nodes, IDLE_S)
    memory = [rss_mib(_pid(running.nodes[node])) * 1024 for node in nodes]
    return Idle(quantity, controller_us / IDLE_S, node_us / IDLE_S, sum(memory) / len(memory))


async def _spent(running: LocalCluster, nodes: Sequence[int], seconds: float) -> tuple[float, float]:
    """Processor time of the controller, and the mean of the nodes, us, over some seconds."""
    pids = [_pid(running.controller), *(_pid(running.nodes[node]) for node in nodes)]
    before = [cpu_us(pid) for pid in pids]
    await asyncio.sleep(seconds)
    spent = [cpu_us(pid) - was for pid, was in zip(pids, before, strict=True)]
    return spent[0], sum(spent[1:]) / len(nodes)


def cpu_us(pid: int) -> float:
    """Processor time of a process's threads so far, us: finer than the ticks of 10 ms in /proc/PID/stat."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e3


def _pid(service: Service) -> int:
    assert service.pid is not None, "what is measured runs"
    return service.pid
