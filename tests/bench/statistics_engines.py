"""All statistics over one export, by one engine, in this process: times, memory and digests as one JSON line.

`statistics_engines.py KIND ROOT`: `duckdb`; `spark`, one after the other; `together`, like in a report; and `archive`,
which makes an archive of classes meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from day.shape import HOUR, START_US
from oracle import Oracle, digest
from pyspark.sql import SparkSession

from strandline_analytics.jvm_start import make_archive
from strandline_analytics.scope import Scope
from strandline_analytics.session import open_session
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_analytics.stats.together import together

_SESSION = {"app": "strandline-bench", "master": "local[2]"}


def peak_mib(pid: int) -> float:
    """The largest resident size that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def cpu_s(pid: int) -> float:
    """The processor time that a process has spent so far."""
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system


class Laps:
    """Times of consecutive steps, in seconds, by the clock and of the processor; ``pids`` are the working processes."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.pids = [os.getpid()]
        self._since = (time.perf_counter(), 0.0)

    def lap(self, name: str) -> None:
        """Give the time since the lap before this name; without a name it is not counted."""
        now = (time.perf_counter(), sum(map(cpu_s, self.pids)))
        if name:
            self.times[name], self.cpu[name] = (round(b - a, 3) for a, b in zip(self._since, now, strict=True))
        self._since = now

    def ended(self) -> dict[str, Any]:
        """Times, and the memory of Python and, if there is one, of the JVM."""
        memory = {name: round(peak_mib(pid)) for name, pid in zip(("python_mib", "jvm_mib"), self.pids, strict=False)}
        return {"times": self.times, "cpu": self.cpu} | memory


def main() -> None:
    """Open, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("root", type=Path)
    parser.add_argument("--memory", default="3g", help="of Spark; DuckDB takes what it needs")
    parser.add_argument("--hours", type=int, default=24)
    asked = parser.parse_args()
    scope = Scope(start_us=START_US, end_us=START_US + asked.hours * HOUR)
    print(json.dumps(KINDS[asked.kind](asked.root, scope, asked.memory)))


def duckdb(root: Path, scope: Scope, memory: str) -> dict[str, Any]:
    """All statistics by DuckDB."""
    laps, digests = Laps(), {}
    oracle = Oracle(root, scope)
    oracle.make_tables(samples=False)
    laps.lap("transitions")
    oracle.make_looks()
    laps.lap("looks")
    for name, statistic in ALL.items():
        rows = oracle.rows(statistic)
        laps.lap(name)
        digests[name] = digest(statistic, scope, rows)
        laps.lap("")
    return laps.ended() | {"digests": digests}


@contextmanager
def spark(memory: str) -> Iterator[tuple[SparkSession, Laps]]:
    """A session, and the laps since before its start."""
    laps = Laps()
    session = open_session(memory=memory, **_SESSION)
    laps.pids.append(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    try:
        yield session, laps
    finally:
        session.stop()


def all_at_once(root: Path, scope: Scope, memory: str) -> dict[str, Any]:
    """All statistics, requested like in a report, several at once."""
    with spark(memory) as (session, laps):
        laps.lap("start")
        digests = answered(session, root, scope)
        laps.lap("all")
        return laps.ended() | {"digests": digests}


def answered(session: SparkSession, root: Path, scope: Scope) -> dict[str, str]:
    """The digests of all statistics, requested together."""
    silver = open_exports(session, [str(root)])
    questions = [(statistic, scope) for statistic in ALL.values()]
    answers = together(silver, questions, lambda _, frame: [row.asDict(recursive=True) for row in frame.collect()])
    return {one.id: digest(one, scope, rows) for (one, _), rows in zip(questions, answers, strict=True)}


def archive(root: Path, scope: Scope, memory: str) -> dict[str, Any]:
    """An archive of the classes that the statistics need is made meanwhile."""
    began = time.perf_counter()
    path = make_archive(
        lambda jvm: open_session(memory=memory, jvm=jvm, **_SESSION), lambda session: answered(session, root, scope)
    )
    return {"archive_s": round(time.perf_counter() - began, 1), "archive_mib": round(path.stat().st_size / (1 << 20))}


def one_by_one(root: Path, scope: Scope, memory: str) -> dict[str, Any]:
    """All statistics, the tables that they share before them, so that a time beside a name is its own."""
    with spark(memory) as (session, laps):
        session.range(1).count()
        laps.lap("start")
        silver = open_exports(session, [str(root)])
        for table in (silver.transitions, silver.control_rows, silver.control, silver.terms):
            table.count()
        laps.lap("transitions")
        silver.looks.count()
        laps.lap("looks")
        digests = {}
        for name, statistic in ALL.items():
            rows = [row.asDict(recursive=True) for row in result(statistic, silver, scope).collect()]
            laps.lap(name)
            digests[name] = digest(statistic, scope, rows)
            laps.lap("")
        return laps.ended() | {"digests": digests}


KINDS = {"duckdb": duckdb, "spark": one_by_one, "together": all_at_once, "archive": archive}


if __name__ == "__main__":
    main()
