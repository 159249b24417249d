"""Measures what the export of state events costs: CPU of its thread, and the p99 of produce beside a cluster without.

Run as `make bench-export`. It reports and asserts nothing: figures of one machine at one time. Two clusters of three
nodes run side by side, one that exports and one that does not; only one of them is under load at a time, in rounds that
alternate, so that both meet the same noise. The promise that the figures are compared with is in `docs/BENCHMARKS.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from closed_loop import TICK_MS, Figures, cpu_ms, measure

from strandline.cli.local_cluster import LocalCluster, Plan
from strandline.client import Admin, Producer
from strandline.export.destination import LocalDirectory
from strandline.export.reading import clusters, find_files, read_rows
from strandline.export.sink import THREAD_NAME

TOPIC = "tides"
PARTITIONS = 36
NODES = 3
SIZE = 1024
WINDOW = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCost:
    """What the export's thread of one process used of it, over the busy seconds of the run."""

    thread_ms: int
    process_ms: int

    @property
    def percent(self) -> float:
        """Its share."""
        return round(100 * self.thread_ms / max(1, self.process_ms), 2)


def export_thread_ms(pid: int) -> int:
    """CPU time of the export's thread so far."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == THREAD_NAME:
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) * TICK_MS
    raise LookupError(f"process {pid} has no thread {THREAD_NAME}")


async def start(directory: Path, settings: Mapping[str, str]) -> LocalCluster:
    """A cluster with one topic."""
    cluster = LocalCluster(Plan(directory=directory, nodes=NODES, node_settings=settings))
    await cluster.start()
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=NODES)
    return cluster


def pids(cluster: LocalCluster) -> dict[str, int]:
    """The data nodes."""
    found = {node_id: cluster.address(node_id) for node_id in cluster.node_ids}
    return {f"node-{node_id}": address.pid for node_id, address in found.items() if address is not None}


async def round_of(producer: Producer, cluster: LocalCluster, run_s: float) -> Figures:
    """One round of load, spread over all partitions."""
    turn = itertools.count()
    value = bytes(SIZE)

    async def send() -> None:
        await producer.send_and_wait(TOPIC, value, partition=next(turn) % PARTITIONS)

    return await measure(send, size_bytes=SIZE, window=WINDOW, warm_s=1.0, run_s=run_s, pids=pids(cluster))


async def compare(work: Path, rounds: int, run_s: float, sample_ms: int) -> dict[str, object]:
    """Both clusters, in turn."""
    exporting = {"export_dir": str(work / "export"), "sample_interval_ms": str(sample_ms)}
    on, off = await start(work / "on", exporting), await start(work / "off", {})
    try:
        async with Producer(on.bootstrap, linger_ms=0) as to_on, Producer(off.bootstrap, linger_ms=0) as to_off:
            pairs, costs, busy = [], [], []
            for number in range(rounds):
                order = [(to_on, on), (to_off, off)]
                figures = {}
                for producer, cluster in order if number % 2 else reversed(order):
                    thread_ms = {name: export_thread_ms(pid) for name, pid in pids(on).items()}
                    process_ms = {name: cpu_ms(pid) for name, pid in pids(on).items()}
                    began_us = time.time_ns() // 1000
                    figures[cluster is on] = await round_of(producer, cluster, run_s)
                    if cluster is on:
                        busy.append((began_us, time.time_ns() // 1000))
                        costs.append(_cost(on, thread_ms, process_ms))
                pairs.append((figures[True], figures[False]))
                print(f"pair {number + 1}: p99 on {pairs[-1][0].p99_ms} ms, off {pairs[-1][1].p99_ms} ms", flush=True)
    finally:
        await asyncio.gather(on.stop(), off.stop())
    return _report(work / "export", pairs, costs, busy)


def _cost(cluster: LocalCluster, thread_ms: Mapping[str, int], process_ms: Mapping[str, int]) -> dict[str, ThreadCost]:
    return {
        name: ThreadCost(thread_ms=export_thread_ms(pid) - thread_ms[name], process_ms=cpu_ms(pid) - process_ms[name])
        for name, pid in pids(cluster).items()
    }


def _report(
    exported: Path,
    pairs: list[tuple[Figures, Figures]],
    costs: list[dict[str, ThreadCost]],
    busy: list[tuple[int, int]],
) -> dict[str, object]:
    ratios = [round(on.p99_ms / off.p99_ms, 3) for on, off in pairs]
    medians = [round(on.p50_ms / off.p50_ms, 3) for on, off in pairs]
    return {
        "rounds": len(pairs),
        "p99_ms_on": [on.p99_ms for on, _ in pairs],
        "p99_ms_off": [off.p99_ms for _, off in pairs],
        "p99_ratio": ratios,
        "p99_ratio_median": round(statistics.median(ratios), 3),
        "p50_ratio_median": round(statistics.median(medians), 3),
        "cpu_ms_per_request_on": _cpu(on for on, _ in pairs),
        "cpu_ms_per_request_off": _cpu(off for _, off in pairs),
        "requests_per_s_on": round(statistics.median(on.megabytes_per_s * 1e6 / SIZE for on, _ in pairs)),
        "requests_per_s_off": round(statistics.median(off.megabytes_per_s * 1e6 / SIZE for _, off in pairs)),
        "nodes": {name: _node(exported, name, costs, busy) for name in costs[0]},
        "bytes_per_row": _bytes_per_row(exported),
    }


def _cpu(rounds: Iterable[Figures]) -> float:
    """CPU of all data nodes for one request, median of the rounds."""
    return round(statistics.median(sum(one.cpu_ms_per_mb.values()) * SIZE / 1e6 for one in rounds), 3)


def _node(
    exported: Path, name: str, costs: list[dict[str, ThreadCost]], busy: list[tuple[int, int]]
) -> dict[str, object]:
    total = ThreadCost(
        thread_ms=sum(cost[name].thread_ms for cost in costs), process_ms=sum(cost[name].process_ms for cost in costs)
    )
    times = _event_times(exported, int(name.removeprefix("node-")))
    events = sum(began_us <= at_us < ended_us for began_us, ended_us in busy for at_us in times)
    seconds = sum(ended_us - began_us for began_us, ended_us in busy) / 1e6
    return {
        "events_per_s": round(events / seconds),
        "thread_ms": total.thread_ms,
        "process_ms": total.process_ms,
        "percent": total.percent,
    }


def _event_times(exported: Path, node_id: int) -> list[int]:
    destination = LocalDirectory(exported)
    (cluster_id,) = clusters(destination)
    return [
        row["ts_wall_us"]
        for file in find_files(destination, cluster_id)
        for row in read_rows(file.path, destination.get(f"{cluster_id}/v1/{file.path}"))
        if row["node_id"] == node_id
    ]


def _bytes_per_row(exported: Path) -> dict[str, float]:
    destination = LocalDirectory(exported)
    (cluster_id,) = clusters(destination)
    manifests = [file.manifest for file in find_files(destination, cluster_id) if file.manifest is not None]
    return {
        dataset: round(sum(m.size_bytes for m in found) / max(1, sum(m.rows for m in found)), 1)
        for dataset in ("transitions", "samples")
        if (found := [m for m in manifests if m.path.startswith(dataset)])
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured seconds of a round")
    parser.add_argument("--sample-ms", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-export-cost-") as work:
        report = asyncio.run(compare(Path(work), arguments.rounds, arguments.seconds, arguments.sample_ms))
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
