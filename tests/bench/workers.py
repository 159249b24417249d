"""Measures what a second worker of a machine gives: the same load on one data node, and on two that share the machine.

Two clients in closed loops, each to one partition without other replicas, page cache: both partitions are led by one
worker, or each by one of two. So all cores are shared by the workers and the clients, and what is measured is what the
cores allow, not how far workers go on a machine that has more of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from statistics import mean
from typing import Any

from bench import Bench, Row
from parties import RUN_GRACE_S, run_script
from plan import Pace, Plan, Shape

from strandline.cli.local.local_cluster import LocalCluster
from strandline.cli.local.local_cluster import Plan as Machine
from strandline.client import Admin

NUMBERS = (1, 2)
CLIENTS = 2
SHAPE = Shape(64, 5)
_STARTING_S, _PER_MEASUREMENT_S = 15, 4
_topics = count(1)


def rows(bench: Bench) -> Iterator[Row]:
    """Both numbers take turns, and which is first changes from round to round."""
    with ExitStack() as running:
        machines = {n: running.enter_context(_machine(bench, n)) for n in NUMBERS}
        for number in range(bench.plan.rounds):
            for workers in NUMBERS if number % 2 == 0 else NUMBERS[::-1]:
                yield from bench.row(
                    lambda workers=workers: measured(machines[workers], bench.plan.pace),
                    round=number,
                    workers=workers,
                )


def expected_s(plan: Plan) -> float:
    """Seconds."""
    return plan.rounds * len(NUMBERS) * (plan.pace.total_s + _PER_MEASUREMENT_S) + _STARTING_S


@contextmanager
def _machine(bench: Bench, workers: int) -> Iterator[LocalCluster]:
    rules = {"durability": "page-cache"}
    directory = bench.directory / f"workers-{workers}"
    machine = LocalCluster(
        Machine(directory=directory, nodes=1, workers=workers, controller_settings=rules, node_settings=rules)
    )
    try:
        asyncio.run(machine.start())
        yield machine
    finally:
        machine.kill()


def measured(machine: LocalCluster, pace: Pace) -> Mapping[str, Any]:
    """One measurement of all clients at once."""
    node_ids = list(machine.nodes)
    topics = {f"workers-{next(_topics)}": node_ids[n % len(node_ids)] for n in range(CLIENTS)}
    asyncio.run(_create(machine.bootstrap, topics))
    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            found = list(pool.map(lambda topic: _one_client(machine, topic, topics[topic], pace), topics))
    finally:
        asyncio.run(_delete(machine.bootstrap, list(topics)))
    return figures_of(found, list(topics.values()))


def figures_of(found: Sequence[Mapping[str, Any]], leaders: Sequence[int]) -> Mapping[str, Any]:
    """The figures of clients that ran at once, each of the worker that leads its partition.

    A worker with several clients is seen by each of them, as a whole.
    """
    cores: dict[int, list[float]] = {node_id: [] for node_id in leaders}
    for one, node_id in zip(found, leaders, strict=True):
        cores[node_id].append(_cores(one, "leader"))
    return {
        "megabytes_per_s": round(sum(one["megabytes_per_s"] for one in found), 1),
        "p50_ms": max(one["p50_ms"] for one in found),
        "p99_ms": max(one["p99_ms"] for one in found),
        "workers_cores": {f"worker-{node_id}": round(mean(each), 2) for node_id, each in cores.items()},
        "clients_cores": round(sum(_cores(one, "client") for one in found), 2),
        "steal_percent": max(one["steal_percent"] for one in found),
    }


def _cores(figures: Mapping[str, Any], process: str) -> float:
    spent: float = figures["cpu_ms_per_mb"][process] * figures["megabytes_per_s"] / 1_000
    return spent


def _one_client(machine: LocalCluster, topic: str, node_id: int, pace: Pace) -> Mapping[str, Any]:
    pids = f"{node_id}:{machine.nodes[node_id].pid}"
    asked = ("stream", machine.bootstrap, pids, topic, SHAPE.kib * 1024, SHAPE.window, pace.warm_s, pace.run_s)
    return run_script("party_strandline.py", *asked, limit_s=pace.total_s + RUN_GRACE_S)


async def _create(bootstrap: str, topics: Mapping[str, int]) -> None:
    async with Admin(bootstrap) as admin:
        for topic, node_id in topics.items():
            await admin.create_topic(topic, assignments={0: [node_id]})


async def _delete(bootstrap: str, topics: Sequence[str]) -> None:
    async with Admin(bootstrap) as admin:
        for topic in topics:
            await admin.delete_topic(topic)
