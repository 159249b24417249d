"""`make bench WHAT=perf`: whether `strandline perf` says of a cluster what the bench says of it, measured by turns.

Writes a block into docs/BENCHMARKS.md and its pairs into benchmarks.json beside it. Bounded in quantities; some
minutes; loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import results
from by_turns import by_turns
from fan_out import line_of, reading
from kept import DOCS, keep
from parties import RUN_GRACE_S, output_of, run_script
from percentiles import latencies_ms
from records_producer import LINGER_MS, RECORD_BYTES

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import Admin

PARTITIONS = 6
PER_SECOND = 25
"""Of the records whose way to a consumer is timed: so few that none waits for another, because the bench's producer
sends one only once the one before is acknowledged, and the command when it is due."""
MOST_APART_PERCENT = 5.0
_SEGMENT_BYTES = 16 << 20
"""Small, so that what a measurement has written leaves the disk when its topic is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    pairs: int = 10
    seconds: float = 2.0
    """For which the bench sends, after a third of it that does not count."""
    records: int = 120_000
    """Which `perf` sends, after a quarter that does not count; and which both read."""
    singles: int = 100
    """Sent and read one by one."""


SHORT = Size(pairs=1, seconds=0.1, records=1_000, singles=20)
"""For trying; no figure means anything."""


class Pair(NamedTuple):
    """The same, measured one after the other."""

    bench: float
    perf: float

    @property
    def ratio(self) -> float:
        """Of what `perf` says to what the bench says."""
        return self.perf / self.bench


Figures = Mapping[str, Sequence[Pair]]
"""By what was measured."""


async def measure(cluster: LocalCluster, size: Size) -> Figures:
    """All three commands."""
    bootstrap = cluster.bootstrap
    pids = ",".join(f"{service.name}:{service.pid}" for service in cluster.nodes.values())
    async with Admin(bootstrap, timeout_ms=60_000) as admin:
        _say("producing")
        produced = await by_turns(
            size.pairs,
            lambda: _bench_produces(admin, bootstrap, pids, size),
            lambda: _perf_produces(admin, bootstrap, size),
        )
        _say("consuming")
        async with _topic(admin, "read", PARTITIONS) as topic:
            filling = ("records_producer.py", "strandline", bootstrap, topic, "fill", size.records)
            await asyncio.to_thread(run_script, *filling, limit_s=RUN_GRACE_S)
            consumed = await by_turns(
                size.pairs,
                lambda: _bench_consumes(bootstrap, topic, pids, size),
                lambda: _perf_consumes(bootstrap, topic, size),
            )
        _say("both")
        passed = await by_turns(
            size.pairs, lambda: _bench_passes(admin, bootstrap, size), lambda: _perf_passes(admin, bootstrap, size)
        )
    return {
        "`perf produce`, records/s": [Pair(*both) for both in produced],
        "`perf consume`, records/s": [Pair(*both) for both in consumed],
        "`perf end-to-end`, p50 in ms": [Pair(*both) for both in passed],
    }


async def _bench_produces(admin: Admin, bootstrap: str, pids: str, size: Size) -> float:
    async with _topic(admin, "bench", PARTITIONS) as topic:
        asked = ("strandline", bootstrap, topic, pids, size.seconds / 3, size.seconds)
        figures = await asyncio.to_thread(run_script, "records_producer.py", *asked, limit_s=RUN_GRACE_S)
        return float(str(figures["records_per_s"]))


async def _perf_produces(admin: Admin, bootstrap: str, size: Size) -> float:
    async with _topic(admin, "perf", PARTITIONS) as topic:
        flags = ("--size", RECORD_BYTES, "--linger", f"{LINGER_MS}ms", "--warm-up", size.records // 4)
        return float((await _perf(bootstrap, "produce", topic, size.records, *flags))["records_per_s"])


async def _bench_consumes(bootstrap: str, topic: str, pids: str, size: Size) -> float:
    asked = ("strandline", bootstrap, topic, pids, size.records)
    figures = await asyncio.to_thread(run_script, "records_consumer.py", *asked, limit_s=RUN_GRACE_S)
    return float(str(figures["records_per_s"]))


async def _perf_consumes(bootstrap: str, topic: str, size: Size) -> float:
    return float((await _perf(bootstrap, "consume", topic, size.records, "--warm-up", 0))["records_per_s"])


async def _bench_passes(admin: Admin, bootstrap: str, size: Size) -> float:
    async with _topic(admin, "aged", 1) as topic:
        return await asyncio.to_thread(_median_age_ms, bootstrap, topic, size.singles)


def _median_age_ms(bootstrap: str, topic: str, count: int) -> float:
    sent = count + count // 10
    with reading(bootstrap, topic, 1, sent) as (process,):
        run_script("paced_producer.py", bootstrap, topic, sent, PER_SECOND, RECORD_BYTES, limit_s=RUN_GRACE_S)
        ages: list[float] = json.loads(line_of(process))
    return latencies_ms(ages[-count:])["p50_ms"]


async def _perf_passes(admin: Admin, bootstrap: str, size: Size) -> float:
    async with _topic(admin, "passed", 1) as topic:
        flags = ("--size", RECORD_BYTES, "--rate", PER_SECOND, "--warm-up", size.singles // 10)
        return float((await _perf(bootstrap, "end-to-end", topic, size.singles, *flags))["latency_ms"]["p50"])


async def _perf(bootstrap: str, kind: str, topic: str, records: int, *flags: object) -> dict[str, Any]:
    words = ("perf", kind, topic, "--records", records, *flags, "--quiet", "--output", "json", "--bootstrap", bootstrap)
    command = [str(Path(sys.executable).parent / "strandline"), *map(str, words)]
    document: dict[str, Any] = json.loads(await asyncio.to_thread(output_of, command, RUN_GRACE_S))
    return document


@asynccontextmanager
async def _topic(admin: Admin, name: str, partitions: int) -> AsyncIterator[str]:
    """A topic whose replicas are all in sync, deleted at the end."""
    await admin.create_topic(name, partitions=partitions, replication_factor=3)
    try:
        async with asyncio.timeout(RUN_GRACE_S):
            while any(  # noqa: ASYNC110 - what is waited for is state, not an event
                one.leader is None or len(one.isr) < 3
                for topic in await admin.describe_topics([name])
                for one in topic.partitions
            ):
                await asyncio.sleep(0.1)
        yield name
    finally:
        await admin.delete_topic(name)


def block(figures: Figures, about: Mapping[str, Any]) -> str:
    """Figures and verdicts as Markdown; ``about`` as `results.conditions` gives it."""
    where = f"{about['cpus']} CPUs, {about['kernel']}, Python {about['python']}"
    return "\n".join(
        [
            "## What `strandline perf` says, beside the bench",
            "",
            f"Measured at commit {about['commit']} on {about['date']}; {where}; load average "
            f"{about['load_before']:.1f} before.",
            f"Three nodes on one machine with the clients, durability=fsync, records of {RECORD_BYTES:,} bytes in "
            f"{PARTITIONS} partitions, acks=all; the way to a consumer is timed at {PER_SECOND} records/s in one "
            "partition. Each pair is one measurement of the bench's own process and one of the command, the other one "
            "first each time.",
            "A ratio is taken in each pair; it is given as the median, with the lowest and the highest.",
            "",
            "| figure | pairs | bench | `perf` | ratio | wanted | |",
            "|---|---|---|---|---|---|---|",
            *(_line(name, pairs) for name, pairs in figures.items()),
        ]
    )


def _line(name: str, pairs: Sequence[Pair]) -> str:
    ratios = [pair.ratio for pair in pairs]
    ratio = statistics.median(ratios)
    bench, perf = (_figure(statistics.median(values)) for values in zip(*pairs, strict=True))
    is_met = round(100 * abs(ratio - 1), 6) <= MOST_APART_PERCENT
    cells = (
        name,
        len(pairs),
        bench,
        perf,
        f"{ratio:.2f} (from {min(ratios):.2f} to {max(ratios):.2f})",
        f"within {MOST_APART_PERCENT:.0f} %",
        "met" if is_met else "**missed**",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.2f}"


def rows(figures: Figures) -> list[dict[str, Any]]:
    """For docs/benchmarks.json: one row for each pair of each figure."""
    return [
        {"pair": number, "figure": name, "figures": pair._asdict()}
        for name, pairs in figures.items()
        for number, pair in enumerate(pairs)
    ]


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


async def _run(size: Size) -> Figures:
    directory = Path(tempfile.mkdtemp(prefix="strandline-perf-"))
    cluster = LocalCluster(Plan(directory=directory, node_settings={"segment_bytes": str(_SEGMENT_BYTES)}))
    try:
        await cluster.start()
        return await measure(cluster, size)
    finally:
        cluster.kill()
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    # An exit, unlike the signal, stops the cluster.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    parser.add_argument("--dry", action="store_true", help="print the block and keep nothing")
    parser.add_argument("--short", action="store_true", help="small quantities, for trying; needs --dry or --docs")
    parser.add_argument("--pairs", type=int, help="of each figure")
    asked = parser.parse_args(arguments)
    if asked.short and not asked.dry and asked.docs == DOCS:
        parser.error("--short needs --dry or --docs: its figures mean nothing and must not replace those in docs/")
    size = SHORT if asked.short else Size()
    if asked.pairs is not None:
        size = replace(size, pairs=asked.pairs)
    about = results.conditions()
    figures = asyncio.run(_run(size))
    text = block(figures, about)
    if not asked.dry:
        keep("perf", text, asked.docs)
        kept = results.read(asked.docs)
        results.put(kept, "perf", about, rows(figures))
        results.write(asked.docs, kept)
    print(text)


if __name__ == "__main__":
    main()
