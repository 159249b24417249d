"""All statistics by Spark over one export, in this process: prints times, memory and digests as one JSON line.

Shared tables are made first, each by itself, so that a time beside a statistic's name is its own. With ``--together``
they are requested like in a report, several at once, and the total time is reported. With ``--archive`` an archive of
classes is made meanwhile. With ``--inspect`` plans are read, and the times are meaningless.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import psutil
from day.shape import HOUR, START_US
from oracle import digest
from pyspark.sql import SparkSession
from scanned import datasets, noted_rows

from strandline_analytics.jvm_start import make_archive
from strandline_analytics.scope import Scope
from strandline_analytics.session import open_session
from strandline_analytics.silver import kept
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_analytics.stats.together import together


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


def main() -> None:
    """Open, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--memory", default="3g")
    parser.add_argument("--hours", type=int, default=24)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--inspect", action="store_true")
    kinds.add_argument("--together", action="store_true")
    kinds.add_argument("--archive", action="store_true")
    asked = parser.parse_args()
    kind = all_at_once if asked.together else archived if asked.archive else measured
    print(json.dumps(kind(asked)))


def all_at_once(asked: argparse.Namespace) -> dict[str, Any]:
    """All statistics, from the start of the session to the last row."""
    laps = Laps()
    session = open_session("strandline-bench", master="local[2]", memory=asked.memory)
    laps.pids.append(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    laps.lap("start")
    digests = answered(session, asked)
    laps.lap("all")
    return ended(session, laps) | {"digests": digests}


def ended(session: SparkSession, laps: Laps) -> dict[str, Any]:
    """Times and memory of a session, which is stopped."""
    memory = dict(zip(("python_mib", "jvm_mib"), (round(peak_mib(pid)) for pid in laps.pids), strict=True))
    session.stop()
    return {"times": laps.times, "cpu": laps.cpu} | memory


def answered(session: SparkSession, asked: argparse.Namespace) -> dict[str, str]:
    """The digests of all statistics, requested together."""
    scope = Scope(start_us=START_US, end_us=START_US + asked.hours * HOUR)
    silver = open_exports(session, [str(asked.root)])
    questions = [(statistic, scope) for statistic in ALL.values()]
    answers = together(silver, questions, lambda _, frame: [row.asDict(recursive=True) for row in frame.collect()])
    return {one.id: digest(one, scope, rows) for (one, _), rows in zip(questions, answers, strict=True)}


def archived(asked: argparse.Namespace) -> dict[str, Any]:
    """An archive of the classes that the statistics need."""
    began = time.perf_counter()
    path = make_archive(
        lambda jvm: open_session("strandline-bench", master="local[2]", memory=asked.memory, jvm=jvm),
        lambda session: answered(session, asked),
    )
    return {"archive_s": round(time.perf_counter() - began, 1), "archive_mib": round(path.stat().st_size / (1 << 20))}


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """From the start of the session to its end."""
    if asked.inspect:
        kept.of_its_rows = noted_rows
    laps = Laps()
    session = open_session("strandline-bench", master="local[2]", memory=asked.memory)
    session.range(1).count()
    laps.pids.append(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    laps.lap("start")
    scope = Scope(start_us=START_US, end_us=START_US + asked.hours * HOUR)
    silver = open_exports(session, [str(asked.root)])
    for table in (silver.transitions, silver.control_rows, silver.control, silver.terms):
        table.count()
    laps.lap("transitions")
    silver.looks.count()
    laps.lap("looks")
    digests, trespassers = {}, []
    for name, statistic in ALL.items():
        frame = result(statistic, silver, scope)
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        laps.lap(name)
        digests[name] = digest(statistic, scope, rows)
        if asked.inspect and not statistic.reads_samples and "samples" in datasets(frame):
            trespassers.append(name)
        laps.lap("")
    return ended(session, laps) | {"digests": digests, "read_samples_too": trespassers}


if __name__ == "__main__":
    main()
