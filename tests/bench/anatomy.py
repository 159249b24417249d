"""`make bench WHAT=anatomy`: what one acknowledged batch costs, in counts; ours beside the stripped pipeline's.

Each pipeline runs three times: as it is, for processor time, context switches and bytes; under `perf trace`, for system
calls; and with `probe/sitecustomize.py` in every process, for messages, objects, calls and task runs. Counts do not
depend on how busy the machine is, apart from how many batches share a message; times do. Copies of bytes inside gRPC
and protobuf are not counted. Needs perf (Debian: linux-perf) and the rights to trace.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
from bars import OURS
from child import HERE
from clusters import cluster
from parties import Party, strandline, stripped_pipeline
from plan import Pace, Shape
from rich.console import Console
from rich.table import Table
from used_memory import UsedMemory

PROBE_S = 10
ROLES = ("leader", "follower0")
RARE = 0.05
"""System calls that are rarer than this per batch in every column are left out."""
_ROW = re.compile(r"^\s+(\w+)\s+(\d+)\s+\d+\s")

Counts = dict[str, Counter[str]]
"""What was counted, by role."""
Figures = dict[str, dict[str, float]]
"""Per role and name, the count of one acknowledged batch."""


Run = Callable[[], int]
"""One measurement; how many batches were acknowledged."""


@contextmanager
def ours(directory: Path) -> Iterator[Party]:
    """A cluster of our own."""
    with cluster(directory, "page-cache") as running:
        yield strandline(running, OURS)


def _spent(pid: int) -> Counter[str]:
    process = psutil.Process(pid)
    cpu, io = process.cpu_times(), process.io_counters()
    switches: Counter[str] = Counter()
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        switches["thread waits (voluntary context switches)"] += int(lines["voluntary_ctxt_switches"])
        switches["preemptions (involuntary context switches)"] += int(lines["nonvoluntary_ctxt_switches"])
    return Counter(
        {
            "processor time, us": round((cpu.user + cpu.system) * 1e6),
            "bytes read and written in files and pipes": io.read_chars + io.write_chars,
            **switches,
        }
    )


def system_calls(summary: str) -> Counter[str]:
    """The calls of all threads in a summary of `perf trace -s`."""
    calls: Counter[str] = Counter()
    for line in summary.splitlines():
        if (row := _ROW.match(line)) is not None:
            calls[row[1]] += int(row[2])
    return calls


def as_it_is(pids: Mapping[str, int], run: Run) -> tuple[Counts, int]:
    """Counters of the kernel around one run."""
    before = {role: _spent(pids[role]) for role in ROLES}
    batches = run()
    found = {role: _spent(pids[role]) for role in ROLES}
    return {role: Counter({k: found[role][k] - before[role][k] for k in found[role]}) for role in ROLES}, batches


def traced(pids: Mapping[str, int], run: Run, directory: Path) -> tuple[Counts, int]:
    """System calls of one run, by name."""
    tracers = {}
    for role in ROLES:
        command = ["perf", "trace", "-s", "-o", str(directory / role), "-p", str(pids[role])]
        tracers[role] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        batches = run()
    finally:
        for tracer in tracers.values():
            tracer.send_signal(signal.SIGINT)
    found: Counts = {}
    for role, tracer in tracers.items():
        _, complaint = tracer.communicate(timeout=PROBE_S)
        if not (directory / role).exists():
            raise SystemExit(f"perf cannot trace: {complaint.strip()}")
        found[role] = system_calls((directory / role).read_text())
    return found, batches


def probed(pids: Mapping[str, int], run: Run, directory: Path) -> tuple[Counts, int]:
    """What the probe counts in one run."""
    for role in ROLES:
        os.kill(pids[role], signal.SIGUSR1)
    batches = run()
    found: Counts = {}
    for role in ROLES:
        written = directory / f"{pids[role]}.json"
        os.kill(pids[role], signal.SIGUSR2)
        deadline = time.monotonic() + PROBE_S
        while not written.exists():
            if time.monotonic() > deadline:
                raise SystemExit(f"the probe in process {pids[role]} wrote nothing within {PROBE_S} s")
            time.sleep(0.05)
        found[role] = Counter(json.loads(written.read_text()))
        written.with_suffix(".prof").rename(directory / f"{role}.prof")
        (directory / f"{role}.batches").write_text(str(batches))
    return found, batches


@contextmanager
def probes(directory: Path) -> Iterator[None]:
    """Processes that start here carry the probe."""
    directory.mkdir()
    before = dict(os.environ)
    os.environ.update(BENCH_PROBE=str(directory), PYTHONPATH=str(HERE / "probe"))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def warmed(
    starting: AbstractContextManager[Party], shape: Shape, pace: Pace
) -> Iterator[tuple[Mapping[str, int], Run]]:
    """The processes of a party by role, and what runs one measurement of it."""
    with starting as party, party.target() as target:
        party.measure_on(target, shape, Pace(0, 1))
        yield target.pids, lambda: int(party.measure_on(target, shape, pace)["requests"])


def anatomy(name: str, shape: Shape, pace: Pace, directory: Path) -> Figures:
    """All three runs of one pipeline."""
    start = {"ours": ours, "stripped": stripped_pipeline}[name]
    figures: Figures = {role: {} for role in ROLES}

    def add(counted: tuple[Counts, int], total: str | None = None) -> None:
        counts, batches = counted
        for role in ROLES:
            if total is not None:
                figures[role][total] = sum(counts[role].values()) / batches
            figures[role] |= {key: count / batches for key, count in sorted(counts[role].items(), key=lambda p: -p[1])}

    with probes(directory / f"{name}-probes"), warmed(start(directory / f"{name}-probed"), shape, pace) as (pids, run):
        add(probed(pids, run, directory / f"{name}-probes"))
    with warmed(start(directory / name), shape, pace) as (pids, run):
        UsedMemory(directory).fill()
        add(as_it_is(pids, run))
        (directory / f"{name}-traces").mkdir()
        add(traced(pids, run, directory / f"{name}-traces"), "system calls")
    return figures


def rows_of(found: dict[str, Figures]) -> list[tuple[str, list[float]]]:
    """Name, and the count at our leader, the stripped leader, our follower, the stripped follower."""
    names = dict.fromkeys(n for figures in found.values() for role in ROLES for n in figures[role])
    rows = [(n, [found[party][role].get(n, 0.0) for role in ROLES for party in ("ours", "stripped")]) for n in names]
    return [row for row in rows if max(row[1]) >= RARE]


def main() -> None:
    """Count and show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kib", type=int, default=64)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--run-s", type=float, default=5.0)
    parser.add_argument("--calls", type=int, default=0, help="show so many functions that take longest")
    asked = parser.parse_args()
    if shutil.which("perf") is None:
        raise SystemExit("perf is not installed; on Debian: apt-get install linux-perf")
    shape, pace = Shape(asked.kib, asked.window), Pace(0, asked.run_s)
    directory = Path(tempfile.mkdtemp(prefix="strandline-anatomy-"))
    try:
        found = {name: anatomy(name, shape, pace, directory) for name in ("stripped", "ours")}
        if asked.calls:
            for name in found:
                show_calls(name, directory / f"{name}-probes", asked.calls)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    table = Table("per acknowledged batch", "our leader", "stripped", "our follower", "stripped", box=None)
    for name, values in rows_of(found):
        table.add_row(name, *map(_shown, values))
    Console().print(table)


def show_calls(name: str, directory: Path, count: int) -> None:
    """Print which functions take longest under the profiler, and how often each is called per batch."""
    for role in ROLES:
        batches = int((directory / f"{role}.batches").read_text())
        found = pstats.Stats(str(directory / f"{role}.prof")).stats  # type: ignore[attr-defined]  # typeshed lacks it
        table = Table(f"{name}: {role}", "calls per batch", "us per batch, own", box=None)
        for place, (_, calls, own_s, _, _) in sorted(found.items(), key=lambda item: -item[1][2])[:count]:
            function = f"{Path(place[0]).name}:{place[1]} {place[2]}"
            table.add_row(function, _shown(calls / batches), _shown(own_s * 1e6 / batches))
        Console().print(table)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
