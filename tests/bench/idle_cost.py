"""Measures what a cluster without any load costs: CPU of each node as a percentage of a core, by number of partitions.

A cluster of its own with its defaults, three replicas each, topics added until the number is reached.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from bench import Bench, Row
from client_records import wait_in_sync
from machine_time import Watch
from parties import cluster, strandline
from plan import Plan

_STARTING_S, _PER_PARTITION_S = 10, 0.02


def rows(bench: Bench) -> Iterator[Row]:
    """The rounds of one number of partitions follow each other, because partitions are only added."""
    with cluster(bench.directory / "idle", "fsync") as running:
        held = 0
        for partitions in bench.plan.idle_partitions:
            topic = f"idle-{partitions}"
            shape = ("--partitions", str(partitions - held), "--replication-factor", "3")
            strandline(running.bootstrap, "topic", "create", topic, *shape)
            wait_in_sync(running.bootstrap, topic)
            held = partitions
            time.sleep(bench.plan.idle_settle_s)
            pids = {service.name: service.pid for service in running.services if service.pid is not None}
            for number in range(bench.plan.rounds):
                yield from bench.row(
                    lambda pids=pids: sample(pids, bench.plan.idle_sample_s), round=number, partitions=partitions
                )


def expected_s(plan: Plan) -> float:
    """Seconds."""
    sampling_s = len(plan.idle_partitions) * (plan.rounds * plan.idle_sample_s + plan.idle_settle_s)
    return sampling_s + max(plan.idle_partitions) * _PER_PARTITION_S + _STARTING_S


def sample(pids: Mapping[str, int], seconds: float) -> Mapping[str, Any]:
    """What these processes use while nobody asks anything of them."""
    watch = Watch(pids)
    time.sleep(seconds)
    spent = watch.end()
    percent = {name: round(ms / spent.elapsed_s / 10, 2) for name, ms in spent.cpu_ms.items()}
    return {"cpu_percent": percent, **spent.machine()}
