"""A cluster whose node is killed, without subscribers and with them: held-up loops, bytes, memory, and when each
subscriber knew it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import grpc
from machine_time import rss_mib
from metadata_gate.stalls import FOLDER, Stall, file_of, read_stalls
from metadata_gate.subscribers import TOPIC, Reached

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.cli.local.processes import Service
from strandline.client import Admin
from strandline.v1 import metadata_service_pb2 as pb
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub

HERE = Path(__file__).parent
STEP_TIMEOUT_S = 900
SETTLE_S = 10.0
AFTER_S = 8.0
"""How long after the kill is looked at: elections, and subscribers that come to another node."""
NODES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the cluster is, and how many subscribe."""

    topics: int = 100
    partitions: int = 100
    replicas: int = 3
    """Of each partition."""
    subscribers: int = 1_000
    processes: int = 2
    """That hold the subscribers."""


class Killed(NamedTuple):
    """A node was killed: the longest stalls of the loops meanwhile, and the growth of the largest node's memory."""

    controller: Stall
    node: Stall
    node_more_mib: float


class Followed(NamedTuple):
    """What subscribers saw of it: seconds after the kill, and bytes of all together."""

    first_s: float
    last_s: float
    behind: int
    """How many never reached the position of the elections."""
    bytes_in: int


class Gate(NamedTuple):
    """The whole measurement."""

    size: Size
    led: int
    """Partitions that the killed node led, of all."""
    alone: Killed
    watched: Killed
    followed: Followed
    snapshots_mib: float
    """Memory of the largest node before the kill beyond that without subscribers."""
    load_before: float


NOTHING = Stall(0.0, 0.0, 0.0)


async def measure(directory: Path, size: Size) -> Gate:
    """Build the cluster, kill a node without subscribers, bring it back, and kill it with them."""
    stalls = directory / "stalls"
    stalls.mkdir(parents=True)
    os.environ[FOLDER] = str(stalls)
    load_before = os.getloadavg()[0]
    async with _cluster(directory) as running:
        led = await _build(running, size)
        alone = await _kill(running, stalls)
        await _bring_back(running)
        before = _memory(running)
        async with _subscribed(running, size) as watching:
            await asyncio.sleep(SETTLE_S)
            snapshots_mib = max(_memory(running)[node] - before[node] for node in running.nodes)
            killed_s = time.monotonic()
            watched = await _kill(running, stalls)
            position = await _position(running)
            followed = _followed(await watching.end(), killed_s, position)
    return Gate(size, led, alone, watched, followed, snapshots_mib, load_before)


@asynccontextmanager
async def _cluster(directory: Path) -> AsyncIterator[LocalCluster]:
    watched = str(HERE / "stalls.py")
    # A killed process is known by its closed connections. On a slow machine making the partitions must fence nobody.
    patient = {"session_timeout_ms": "120000", "auto_leader_rebalance_enable": "false"}
    lag = {"replica_lag_time_max_ms": "120000"}
    plan = Plan(
        directory=directory / "cluster",
        nodes=NODES,
        controller_settings=patient,
        node_settings=lag,
        controller_module=(watched, "strandline.controller"),
        replica_module=(watched, "strandline.node"),
    )
    running = LocalCluster(plan)
    try:
        await running.start()
        yield running
    finally:
        running.kill()


async def _build(running: LocalCluster, size: Size) -> int:
    """Make the topics; returns how many partitions the node leads that is killed."""
    async with Admin(running.bootstrap, timeout_ms=60_000) as admin:
        for number in range(size.topics):
            await admin.create_topic(f"{TOPIC}{number}", partitions=size.partitions, replication_factor=size.replicas)
            _say(f"topic {number + 1} of {size.topics}")
        await _until_whole(admin)
        topics = await admin.describe_topics()
    await asyncio.sleep(SETTLE_S)
    return sum(one.leader == NODES for topic in topics for one in topic.partitions)


async def _until_whole(admin: Admin) -> None:
    async with asyncio.timeout(STEP_TIMEOUT_S):
        while True:
            topics = await admin.describe_topics()
            parts = [one for topic in topics for one in topic.partitions]
            missing = sum(one.leader is None or len(one.isr) < len(one.replicas) for one in parts)
            newest = (await admin.metadata()).metadata_offset
            behind = [row.node.node_id for row in await admin.list_nodes() if (row.metadata_offset or 0) < newest]
            if not missing and not behind:
                return
            # A node that still makes logs would count that as the cost of the death.
            _say(f"{missing} partitions lack a leader or a member; nodes {behind} have not taken all metadata")
            await asyncio.sleep(2)


async def _kill(running: LocalCluster, stalls: Path) -> Killed:
    _say("kill")
    survivors = [node for node in running.nodes if node != NODES]
    before, began_s = _memory(running), time.monotonic()
    running.kill_node(NODES)
    highest = dict(before)
    while time.monotonic() < began_s + AFTER_S:
        for node in survivors:
            highest[node] = max(highest[node], rss_mib(_pid(running.nodes[node])))
        await asyncio.sleep(0.1)
    return Killed(
        _longest(stalls, running.controller, began_s),
        max((_longest(stalls, running.nodes[node], began_s) for node in survivors), key=lambda stall: stall.late_ms),
        max(highest[node] - before[node] for node in survivors),
    )


def _longest(stalls: Path, service: Service, began_s: float) -> Stall:
    found = [stall for stall in read_stalls(file_of(stalls, _pid(service))) if stall.at_s >= began_s]
    return max(found, key=lambda stall: stall.late_ms, default=NOTHING)


async def _bring_back(running: LocalCluster) -> None:
    await running.start_node(NODES, timeout_ms=STEP_TIMEOUT_S * 1_000)
    async with Admin(running.bootstrap, timeout_ms=60_000) as admin:
        await _until_whole(admin)
        await admin.elect_leaders()
        await _until_whole(admin)
    await asyncio.sleep(SETTLE_S)


async def _position(running: LocalCluster) -> int:
    """The controller's, once all elections are over."""
    async with grpc.aio.insecure_channel(running.bootstrap) as channel:
        answer: pb.DescribeClusterResponse = await MetadataServiceStub(channel).DescribeCluster(
            pb.DescribeClusterRequest(), timeout=10
        )
    return answer.as_of.metadata_offset


class _Watching:
    """The processes that hold the subscribers."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def ready(self) -> None:
        """Until each has its state."""
        async with asyncio.timeout(STEP_TIMEOUT_S):
            for process in self._processes:
                assert process.stdout is not None, "it is a pipe"
                assert await process.stdout.readline() == b"ready\n", "a process of subscribers ended"

    async def end(self) -> list[Reached]:
        """What each subscriber reached."""
        found = []
        for process in self._processes:
            content, _ = await process.communicate(b"\n")
            found += [Reached(bytes_in, [tuple(one) for one in times]) for bytes_in, times in json.loads(content)]
        return found

    def kill(self) -> None:
        """End what still runs."""
        for process in self._processes:
            if process.returncode is None:
                process.kill()


@asynccontextmanager
async def _subscribed(running: LocalCluster, size: Size) -> AsyncIterator[_Watching]:
    addresses = [address.client for node in running.nodes if (address := running.address(node)) is not None]
    share = size.subscribers // size.processes
    async with AsyncExitStack() as stack:
        processes = []
        for number in range(size.processes):
            command = [str(HERE / "subscribers.py"), str(number * share), str(share), str(size.topics), *addresses]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 28,
            )
            processes.append(process)
        watching = _Watching(processes)
        stack.callback(watching.kill)
        await watching.ready()
        yield watching


def _followed(reached: Sequence[Reached], killed_s: float, position: int) -> Followed:
    """When the subscribers reached ``position``, and what all were sent since the kill and before it."""
    times = [next((at_s for at_s, offset in one.times if offset >= position), None) for one in reached]
    known = [at_s - killed_s for at_s in times if at_s is not None]
    return Followed(
        min(known, default=float("inf")),
        max(known, default=float("inf")),
        times.count(None),
        sum(one.bytes_in for one in reached),
    )


def _memory(running: LocalCluster) -> Mapping[int, float]:
    return {node: rss_mib(_pid(service)) for node, service in running.nodes.items() if service.running}


def _pid(service: Service) -> int:
    assert service.pid is not None, "what is measured runs"
    return service.pid


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
