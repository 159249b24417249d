"""Measures what a cluster without any load costs: CPU of each node as a percentage of a core, by number of partitions.

A cluster of its own with its defaults, three replicas each, topics added until the number is reached.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from bench import Bench, Row
from child import in_loop
from clusters import cluster, create_topic
from machine_time import Watch


def rows(bench: Bench) -> Iterator[Row]:
    """The rounds of one number of partitions follow each other, because partitions are only added."""
    with cluster(bench.directory / "idle") as running:
        held = 0
        for partitions in bench.plan.idle_partitions:
            in_loop(create_topic(running.bootstrap, f"idle-{partitions}", partitions - held))
            held = partitions
            time.sleep(bench.plan.settle_s)
            pids = {service.name: service.pid for service in running.services if service.pid is not None}
            for number in range(bench.plan.rounds):
                yield from bench.row(
                    lambda pids=pids: sample(pids, bench.plan.sample_s), round=number, partitions=partitions
                )


def sample(pids: Mapping[str, int], seconds: float) -> Mapping[str, Any]:
    """What these processes use while no client asks anything of them."""
    watch = Watch(pids)
    time.sleep(seconds)
    spent = watch.end()
    percent = {name: round(ms / spent.elapsed_s / 10, 2) for name, ms in spent.cpu_ms.items()}
    return {"cpu_percent": percent, **spent.machine()}
