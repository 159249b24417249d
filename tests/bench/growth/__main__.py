"""`make bench WHAT=growth`: measures what load, partitions, clients, nodes and elections cost, fits lines, and says
what a larger deployment needs and what breaks first.

Keeps a block for docs/BENCHMARKS.md. Bounded in quantities and seconds, about five minutes; loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypeVar

from growth import measured
from growth.model import Check, Costs, Line
from growth.page import growth_block
from kept import DOCS, keep, measured_commit
from rich.console import Console

_T = TypeVar("_T")

FITTED_KIB, KEPT_KIB = (4, 32, 256), 128
FITTED_PARTITIONS, KEPT_PARTITIONS = (0, 100, 400), 1_000
CLIENTS = (0, 20, 60)
NODES = (3, 6, 9)
LED = (300, 1_200)
"""Partitions of the cluster before a node is killed, which leads a third of them."""


async def observe(directory: Path, console: Console) -> tuple[Costs, list[Check]]:
    """Every measurement, the lines through them, and the two points that were kept aside."""

    async def shown(what: str, points: AsyncIterator[_T]) -> list[_T]:
        found = []
        with console.status(what):
            async for point in points:
                console.print(f"{what}: {point}", highlight=False)
                found.append(point)
        return found

    loads = await shown("load", measured.loads(directory / "loads", (*FITTED_KIB, KEPT_KIB)))
    partitions = await shown(
        "idle partitions", measured.idle_partitions(directory / "partitions", (*FITTED_PARTITIONS, KEPT_PARTITIONS))
    )
    clients = await shown("waiting consumers", measured.idle_clients(directory / "clients", CLIENTS))
    nodes = await shown("nodes", measured.nodes(directory / "nodes", NODES))
    dead = await shown("elections", measured.elections(directory / "elections", LED))

    fitted, kept = loads[:-1], loads[-1]
    idle = [one for one, _ in partitions]
    costs = Costs(
        leader_batch=Line.through([(one.kib, one.leader_us) for one in fitted]),
        follower_batch=Line.through([(one.kib, one.follower_us) for one in fitted]),
        idle_partitions=Line.through([(one.quantity, one.node_us_per_s) for one in idle[:-1]]),
        idle_clients=Line.through([(one.quantity, one.node_us_per_s) for one in clients]),
        idle_nodes=Line.through([(one.idle.quantity, one.idle.controller_us_per_s) for one in nodes]),
        watching_clients=Line.through([(one.quantity, one.controller_us_per_s) for one in clients]),
        changes=Line.through([(one.idle.quantity, one.change_us) for one in nodes]),
        controller_elections=Line.through([(one.partitions, one.controller_us) for one in dead]),
        node_elections=Line.through([(one.partitions, one.node_us) for one in dead]),
        partition_kib=Line.through([(one.quantity, one.node_kib) for one in idle[:-1]]),
        client_kib=Line.through([(one.quantity, one.node_kib) for one in clients]),
        metadata_by_partitions=Line.through([(one.quantity, size) for one, size in partitions]),
        metadata_by_nodes=Line.through([(one.idle.quantity, one.state_bytes) for one in nodes]),
    )
    return costs, [
        Check(f"leader, one batch of {KEPT_KIB} KiB", costs.leader_batch.at(kept.kib), kept.leader_us, "us"),
        Check(
            f"data node with {KEPT_PARTITIONS:,} idle partitions",
            costs.idle_partitions.at(KEPT_PARTITIONS),
            idle[-1].node_us_per_s,
            "us/s",
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    asked = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="strandline-growth-"))
    console = Console(stderr=True)
    try:
        costs, checks = asyncio.run(observe(directory, console))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = growth_block(costs, checks, measured_commit())
    keep("growth", text, asked.docs)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
