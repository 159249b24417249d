"""Measures what a node's death costs controller, nodes and a thousand subscribers to metadata (C67): held-up loops,
memory, bytes, and when each subscriber knew it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import grpc
from bench import Bench, Row
from child import HERE, helper, in_loop
from clusters import cluster, in_sync, until
from loop_stalls import FOLDER, longest_stall
from machine_time import rss_mib
from metadata_subscribers import TOPIC
from plan import Plan
from report import size_row

from strandline.cli.local.local_cluster import LocalCluster
from strandline.cli.local.processes import Service
from strandline.client import Admin
from strandline.v1 import metadata_service_pb2 as pb
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub

CONTROLLER_STALL_MS, NODE_STALL_MS, CURRENT_S, MORE_MIB = 50, 100, 1.0, 200
"""What is wanted: each figure is to be below its limit."""
PARTITIONS = 100
"""Of each topic; each has three replicas."""
KILLED = 3
PROCESSES = 2
"""That hold the subscribers."""
AFTER_S = 8.0
"""How long after the kill is looked at: elections, and subscribers that come to another node."""
_STEP_S = 900

Reached = tuple[int, list[tuple[float, int]]]
"""What one subscriber was sent: bytes, and when it reached which offset, as (monotonic s, offset)."""


def rows(bench: Bench) -> Iterator[Row]:
    """Build the cluster, kill a node under the subscribers."""
    plan, stalls = bench.plan, bench.directory / "stalls"
    stalls.mkdir()
    os.environ[FOLDER] = str(stalls)
    watched = str(HERE / "loop_stalls.py")
    # A killed process is known by its closed connections. On a slow machine making the partitions must fence no node.
    settings = {
        "controller_settings": {"session_timeout_ms": "120000", "auto_leader_rebalance_enable": "false"},
        "node_settings": {"replica_lag_time_max_ms": "120000"},
        "controller_module": (watched, "strandline.controller"),
        "replica_module": (watched, "strandline.node"),
    }
    with cluster(bench.directory / "metadata", **settings) as running:
        led = in_loop(_build(running, plan.topics, bench))
        time.sleep(plan.settle_s)
        before = _memory(running)
        with _subscribed(running, plan) as processes:
            time.sleep(plan.settle_s)
            bench.say(f"metadata: a node dies that leads {led:,} partitions")
            killed_s = time.monotonic()
            highest = _kill(running)
            position = in_loop(_position(running))
            reached: list[Reached] = [one for each in processes for one in json.loads(each.communicate("\n")[0])]
        survivors = [service for node, service in running.nodes.items() if node != KILLED]
        stalled = [longest_stall(stalls, _pid(service), killed_s) for service in (running.controller, *survivors)]
    controller, node = stalled[0], max(stalled[1:], key=lambda stall: stall.late_ms)
    more_mib = max(highest[node_id] - before[node_id] for node_id in highest)
    beside = (
        f"{led:,} of {plan.topics * PARTITIONS:,} partitions lose their leader under {plan.subscribers:,} subscribers"
    )
    limits = (f"below {CONTROLLER_STALL_MS} ms", f"below {NODE_STALL_MS} ms")
    loop = f"{beside}: longest stall of the controller's loop"
    yield size_row(loop, str(controller), limits[0], controller.late_ms < CONTROLLER_STALL_MS)
    yield size_row("longest stall of a surviving node's loop", str(node), limits[1], node.late_ms < NODE_STALL_MS)
    yield known_row(reached, killed_s, position)
    more = "memory of a node beyond that without subscribers"
    yield size_row(more, f"{more_mib:.0f} MiB", f"below {MORE_MIB} MiB", more_mib < MORE_MIB)
    sent = sum(bytes_in for bytes_in, _ in reached) / 1e6
    yield size_row("bytes to all subscribers, their first state included", f"{sent:.1f} MB")


def known_row(reached: Sequence[Reached], killed_s: float, position: int) -> Row:
    """When the subscribers reached ``position``; one that never did misses the gate, however soon all others knew."""
    times = [next((at_s for at_s, offset in one if offset >= position), None) for _, one in reached]
    known = [at_s - killed_s for at_s in times if at_s is not None]
    never = times.count(None)
    first_s, last_s = min(known, default=float("inf")), max(known, default=float("inf"))
    measured = f"first {first_s:.2f} s, last {last_s:.2f} s" + (f", {never} never" if never else "")
    is_met = last_s < CURRENT_S and not never
    return size_row("subscribers know it, after the kill", measured, f"last below {CURRENT_S:.0f} s", is_met)


async def _build(running: LocalCluster, topics: int, bench: Bench) -> int:
    """Make the topics; returns how many partitions the node leads that is killed."""
    async with Admin(running.bootstrap, timeout_ms=60_000) as admin:
        for number in range(topics):
            bench.say(f"metadata: topic {number + 1} of {topics}")
            await admin.create_topic(f"{TOPIC}{number}", partitions=PARTITIONS, replication_factor=3)
        await in_sync(admin, within_s=_STEP_S)
        # A node that still makes logs would count that as the cost of the death.
        await until(partial(_knows_all, admin), _STEP_S)
        found = await admin.describe_topics()
    return sum(one.leader == KILLED for topic in found for one in topic.partitions)


async def _knows_all(admin: Admin) -> bool:
    """Whether every node has all metadata."""
    newest = (await admin.metadata()).metadata_offset
    return all((row.metadata_offset or 0) >= newest for row in await admin.list_nodes())


def _kill(running: LocalCluster) -> Mapping[int, float]:
    """Kill the node; the most memory that each survivor then has, MiB."""
    running.kill_node(KILLED)
    highest, ends_s = _memory(running), time.monotonic() + AFTER_S
    while time.monotonic() < ends_s:
        highest = {node: max(mib, highest[node]) for node, mib in _memory(running).items()}
        time.sleep(0.1)
    return highest


async def _position(running: LocalCluster) -> int:
    """The controller's, once all elections are over."""
    async with grpc.aio.insecure_channel(running.bootstrap) as channel:
        stub = MetadataServiceStub(channel)
        answer: pb.DescribeClusterResponse = await stub.DescribeCluster(pb.DescribeClusterRequest(), timeout=10)
    return answer.as_of.metadata_offset


@contextmanager
def _subscribed(running: LocalCluster, plan: Plan) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes that hold the subscribers, each of which has its state."""
    addresses = [address.client for node in running.nodes if (address := running.address(node)) is not None]
    share, script = plan.subscribers // PROCESSES, HERE / "metadata_subscribers.py"
    with ExitStack() as stack:
        commands = ([script, number * share, share, plan.topics, *addresses] for number in range(PROCESSES))
        started = [stack.enter_context(helper(command)) for command in commands]
        for process in started:
            assert process.stdout is not None, "it is a pipe"
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a process of subscribers ended")
        yield started


def _memory(running: LocalCluster) -> Mapping[int, float]:
    return {node: rss_mib(_pid(service)) for node, service in running.nodes.items() if service.running}


def _pid(service: Service) -> int:
    assert service.pid is not None, "what is measured runs"
    return service.pid
