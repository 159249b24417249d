"""Measures what moving replicas costs those who write: sixty partitions go from three nodes to three others at a
throttle, while another topic on the same nodes gets half the load that the cluster takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench import Bench, Row
from child import in_loop
from clusters import cluster, in_sync
from report import size_row

from strandline.cli.perf.load import Load
from strandline.cli.perf.measure import measure_producing, percentiles_ms
from strandline.client import Admin, Producer

RATE = 20_000_000
"""Bytes per second that each new node may receive."""
MOST_SLOWER, LEAST_SHARE = 2.0, 0.8
MOVED, WRITTEN = "moved", "written"
PARTITIONS, WRITTEN_PARTITIONS = 60, 6
OLD, NEW = (1, 2, 3), (4, 5, 6)
_RECORD_BYTES, _FILLED_BYTES = 1_024, 64 << 10
_SEGMENT_BYTES = 16 << 20
"""Small, so that the records of the load leave the disk when they are deleted."""
_MOST_S = 3_600.0


@dataclass(slots=True)
class Figures:
    """What one run counted; seconds in ``_s``."""

    rate: float = 0.0
    before_s: list[float] = field(default_factory=list)
    during_s: list[float] = field(default_factory=list)
    retries: int = 0
    moved_bytes: int = 0
    took_s: float = 0.0


def rows(bench: Bench) -> Iterator[Row]:
    """What was refused, the slowest acknowledgements, and how much of the throttle is used."""
    settings = {"segment_bytes": str(_SEGMENT_BYTES)}
    with cluster(bench.directory / "moves", nodes=len(OLD + NEW), node_settings=settings) as running:
        bench.say("moves: filling, and the load before")
        seen = in_loop(_measure(running.bootstrap, bench))
    each = seen.moved_bytes / seen.took_s
    before, during = (percentiles_ms(times)["p99"] or 0.0 for times in (seen.before_s, seen.during_s))
    moved = (
        f"{PARTITIONS} partitions of {seen.moved_bytes / 1e9:.2f} GB moved to three other nodes in {seen.took_s:.0f} s"
    )
    yield size_row(
        f"{moved}: acks=all of another topic refused or sent again", str(seen.retries), "0", not seen.retries
    )
    yield size_row(
        f"p99 of its acknowledgements at {seen.rate:,.0f} records/s, of that before ({during:.1f} and {before:.1f} ms)",
        f"{during / before:.2f} x",
        f"at most {MOST_SLOWER:.0f} x",
        during <= MOST_SLOWER * before,
    )
    yield size_row(
        f"bytes/s that each new node received, of its throttle of {RATE / 1e6:.0f} MB/s",
        f"{each / RATE:.2f} x",
        f"at least {LEAST_SHARE} x",
        each >= LEAST_SHARE * RATE,
    )


async def _measure(bootstrap: str, bench: Bench) -> Figures:
    plan, seen = bench.plan, Figures()
    load = Load(topic=WRITTEN, size_bytes=_RECORD_BYTES)
    async with (
        Admin(bootstrap, timeout_ms=60_000) as admin,
        Producer(bootstrap, on_delivery=load.batch_ended) as producer,
    ):
        seen.moved_bytes = await _fill(bootstrap, admin, plan.move_bytes)
        await admin.create_topic(WRITTEN, assignments=_turns(OLD, WRITTEN_PARTITIONS))
        await in_sync(admin)
        await measure_producing(load, producer, plan.transaction_records // 10, 0, _unseen)
        whole = await measure_producing(load, producer, plan.transaction_records, 0, _unseen)
        load.rate = seen.rate = whole.records / whole.elapsed_s / 2
        # In the same pieces as during the moves: each begins with its own slow acknowledgements.
        for _ in range(10):
            seen.before_s += await _load(admin, load, producer, plan.sample_s / 5)
        bench.say("moves: the same load while replicas move")
        retries, began_s = producer.stats().retries, time.monotonic()
        targets = {(MOVED, partition): nodes for partition, nodes in _turns(NEW, PARTITIONS).items()}
        await admin.alter_partition_reassignments(targets, throttle_bytes_per_s=RATE)
        while await admin.list_partition_reassignments():
            seen.took_s = time.monotonic() - began_s
            if seen.took_s > _MOST_S:
                raise TimeoutError(f"replicas still move after {_MOST_S:.0f} s")
            seen.during_s += await _load(admin, load, producer, plan.sample_s / 5)
        seen.took_s = time.monotonic() - began_s
        seen.retries = producer.stats().retries - retries
    return seen


async def _fill(bootstrap: str, admin: Admin, size_bytes: int) -> int:
    """Make the topic that is moved, with about so many bytes on each of its nodes; as many as it has."""
    await admin.create_topic(MOVED, assignments=_turns(OLD, PARTITIONS))
    await in_sync(admin)
    load = Load(topic=MOVED, size_bytes=_FILLED_BYTES)
    async with Producer(bootstrap, on_delivery=load.batch_ended) as producer:
        filled = await measure_producing(load, producer, -(-size_bytes // _FILLED_BYTES), 0, _unseen)
    return filled.size_bytes


async def _load(admin: Admin, load: Load, producer: Producer[Any, Any], for_s: float) -> list[float]:
    """Latencies in seconds, from when each record was due; what was written is deleted."""
    measured = await measure_producing(load, producer, max(1, round((load.rate or 0) * for_s)), 0, _unseen)
    await admin.delete_records(WRITTEN, dict.fromkeys(range(WRITTEN_PARTITIONS), -1))
    return list(measured.latencies_s)


def _turns(nodes: tuple[int, ...], count: int) -> dict[int, tuple[int, ...]]:
    """All nodes for each partition, each the preferred leader of as many."""
    return {number: nodes[number % len(nodes) :] + nodes[: number % len(nodes)] for number in range(count)}


def _unseen(_: int) -> None:
    """A measurement has no watcher."""
