"""The cost of exporting state events: CPU of its thread, and the p99 of produce beside a cluster without it.

Run as `make bench WHAT=export`, which writes its block of `docs/BENCHMARKS.md`. It reports and asserts nothing: figures
of one machine at one time. Two clusters of three nodes run side by side, one that exports and one that does not; only
one of them is under load at a time, in rounds that alternate, so that both meet the same noise. Files end ten times as
often as they do by default, so that every pair of rounds has its share of sorting, compressing and placing them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow.compute as pc
from closed_loop import Figures, measure
from export_report import NodeCost, Pair, Run, report
from kept import keep

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import Admin, Producer
from strandline.export.arrow import read_parquet
from strandline.export.destination import LocalDirectory
from strandline.export.reading import clusters, find_files
from strandline.export.sink import THREAD_NAME

TOPIC = "tides"
NODES = 3
SIZE = 1024
WARM_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load on the clusters, and the sampling detail of the exporting one."""

    rounds: int
    run_s: float
    sample_ms: int
    forced_ms: int
    partitions: int
    window: int
    roll_s: int


@dataclass(frozen=True, slots=True)
class Used:
    """CPU time in ns: of a process, and of its export's thread."""

    process_ns: int
    thread_ns: int


def process_ns(pid: int) -> int:
    """CPU time of a process so far, all threads: its CPU clock, in the encoding of clock_getcpuclockid (Linux)."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def export_thread_ns(pid: int) -> int:
    """CPU time of the export's thread so far.

    Raises:
        LookupError: the process has no such thread.
    """
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == THREAD_NAME:
            return int((task / "schedstat").read_text().split()[0])
    raise LookupError(f"process {pid} has no thread {THREAD_NAME}")


def machine_s() -> tuple[float, float]:
    """Seconds of CPU that the machine spent on anything, and its total."""
    spent = psutil.cpu_times()
    # Time of guests is part of user and nice already.
    total = sum(spent) - spent.guest - spent.guest_nice
    return total - spent.idle - spent.iowait, total


async def start(directory: Path, settings: Mapping[str, str], partitions: int) -> LocalCluster:
    """A cluster with one topic."""
    cluster = LocalCluster(Plan(directory=directory, nodes=NODES, node_settings=settings))
    await cluster.start()
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=partitions, replication_factor=NODES)
    return cluster


def pids(cluster: LocalCluster) -> dict[str, int]:
    """The data nodes."""
    found = {node_id: cluster.address(node_id) for node_id in cluster.node_ids}
    return {f"node-{node_id}": address.pid for node_id, address in found.items() if address is not None}


async def one_round(producer: Producer, cluster: LocalCluster, load: Load) -> Figures:
    """One round of load, spread over all partitions."""
    turn = itertools.count()
    value = bytes(SIZE)

    async def send() -> None:
        await producer.send_and_wait(TOPIC, value, partition=next(turn) % load.partitions)

    return await measure(send, size_bytes=SIZE, window=load.window, warm_s=WARM_S, run_s=load.run_s, pids=pids(cluster))


class Comparison:
    """Both clusters, in turn, and the measurements so far."""

    def __init__(self, on: LocalCluster, off: LocalCluster, load: Load) -> None:
        self._on, self._off, self._load = on, off, load
        self.pairs: list[Pair] = []
        self.used: list[dict[str, Used]] = []
        self.busy: list[tuple[int, int]] = []

    async def measure(self) -> None:
        """All rounds."""
        async with Producer(self._on.bootstrap, linger_ms=0) as on, Producer(self._off.bootstrap, linger_ms=0) as off:
            for number in range(self._load.rounds):
                spent = self._spent()
                if number % 2:
                    with_export, without = await self._exporting(on), await one_round(off, self._off, self._load)
                else:
                    without, with_export = await one_round(off, self._off, self._load), await self._exporting(on)
                others = 100 * (1 - (self._spent()[1] - spent[1]) / max(1e-9, self._spent()[0] - spent[0]))
                self.pairs.append(Pair(with_export, without, others_percent=round(others, 1)))
                print(f"pair {number + 1}: p99 on {with_export.p99_ms} ms, off {without.p99_ms} ms", flush=True)

    async def _exporting(self, producer: Producer) -> Figures:
        before, began_us = self._used(), time.time_ns() // 1000
        figures = await one_round(producer, self._on, self._load)
        after = self._used()
        self.busy.append((began_us, time.time_ns() // 1000))
        self.used.append(
            {
                name: Used(after[name].process_ns - one.process_ns, after[name].thread_ns - one.thread_ns)
                for name, one in before.items()
            }
        )
        return figures

    def _used(self) -> dict[str, Used]:
        return {name: Used(process_ns(pid), export_thread_ns(pid)) for name, pid in pids(self._on).items()}

    def _spent(self) -> tuple[float, float]:
        """CPU seconds of the whole machine, and of the processes of this measurement."""
        ours = [os.getpid(), *pids(self._on).values(), *pids(self._off).values()]
        ours += [service.pid for service in (self._on.controller, self._off.controller) if service.pid is not None]
        return machine_s()[0], sum(process_ns(pid) for pid in ours) / 1e9


async def compare(work: Path, load: Load) -> Run:
    """Both clusters from their start to their end."""
    loads = os.getloadavg()[0]
    exporting = {
        "export_dir": str(work / "export"),
        "sample_interval_ms": str(load.sample_ms),
        "tune": f"sample_max_interval_ms={load.forced_ms}",
        "export_roll_s": str(load.roll_s),
    }
    on = await start(work / "on", exporting, load.partitions)
    off = await start(work / "off", {}, load.partitions)
    comparison = Comparison(on, off, load)
    try:
        await comparison.measure()
    finally:
        await asyncio.gather(on.stop(), off.stop())
    return Run(
        pairs=comparison.pairs,
        nodes=_nodes(work / "export", comparison),
        bytes_per_row=_bytes_per_row(work / "export"),
        load_before=loads,
        load_after=os.getloadavg()[0],
        run_s=load.run_s,
        about=f"{NODES} nodes, {load.partitions} partitions with three replicas, {load.window} requests of {SIZE} bytes"
        f" outstanding, acks=all, fsync; {load.run_s} s a round after {WARM_S} s of warming; samples every"
        f" {load.sample_ms} ms, of what did not change every {load.forced_ms} ms, files of {load.roll_s} s",
    )


def _nodes(exported: Path, comparison: Comparison) -> dict[str, NodeCost]:
    seconds = sum(ended_us - began_us for began_us, ended_us in comparison.busy) / 1e6
    return {
        name: NodeCost(
            events_per_s=_events(exported, int(name.removeprefix("node-")), comparison.busy) / seconds,
            thread_ms=sum(used[name].thread_ns for used in comparison.used) / 1e6,
            process_ms=sum(used[name].process_ns for used in comparison.used) / 1e6,
        )
        for name in comparison.used[0]
    }


def _events(exported: Path, node_id: int, busy: list[tuple[int, int]]) -> int:
    """How many of a node's own events lie in the busy periods."""
    destination = LocalDirectory(exported)
    (cluster_id,) = clusters(destination)
    count = 0
    for file in find_files(destination, cluster_id):
        table = read_parquet(destination.get(f"{cluster_id}/v1/{file.path}"), ["node_id", "ts_wall_us"])
        times = table.filter(pc.equal(table["node_id"], node_id))["ts_wall_us"].to_pylist()
        count += sum(began_us <= at_us < ended_us for at_us in times for began_us, ended_us in busy)
    return count


def _bytes_per_row(exported: Path) -> dict[str, float]:
    destination = LocalDirectory(exported)
    (cluster_id,) = clusters(destination)
    manifests = [file.manifest for file in find_files(destination, cluster_id) if file.manifest is not None]
    return {
        dataset: sum(m.size_bytes for m in found) / max(1, sum(m.rows for m in found))
        for dataset in ("transitions", "samples")
        if (found := [m for m in manifests if m.path.startswith(dataset)])
    }


def main() -> None:
    """Run, print, and write the page's block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured seconds of a round")
    parser.add_argument("--sample-ms", type=int, default=100)
    parser.add_argument("--forced-ms", type=int, default=10_000, help="100 makes events whatever the machine can serve")
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--window", type=int, default=24, help="requests outstanding")
    parser.add_argument("--roll-s", type=int, default=30, help="seconds after which an exported file ends")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    asked = parser.parse_args()
    load = Load(
        rounds=asked.rounds,
        run_s=asked.seconds,
        sample_ms=asked.sample_ms,
        forced_ms=asked.forced_ms,
        partitions=asked.partitions,
        window=asked.window,
        roll_s=asked.roll_s,
    )
    with tempfile.TemporaryDirectory(prefix="strandline-export-cost-") as work:
        text = report(asyncio.run(compare(Path(work), load)))
    print(text)
    if not asked.dry:
        keep("export", text)


if __name__ == "__main__":
    main()
