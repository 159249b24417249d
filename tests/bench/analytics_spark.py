"""All statistics by Spark over one export, in this process: prints times, memory and digests as one JSON line.

Shared tables are made first, each by itself, so that a time beside a statistic's name is its own. With ``--together``
they are requested like in a report, several at once, and the total time is reported. With ``--archive`` an archive of
classes is made meanwhile. With ``--inspect`` the times are meaningless, because Spark writes its event log meanwhile,
and plans are read: how many stages there were, whether they spilled or were skewed, and what they read.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from day.shape import HOUR, START_US
from pyspark.sql import SparkSession
from stage_log import settings, steps_of

from strandline_analytics.jvm_start import make_archive
from strandline_analytics.scope import Scope
from strandline_analytics.session import MIDDLE_BYTES, open_session, session_for
from strandline_analytics.sources import exports
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_analytics.stats.together import together

sys.path.append(str(Path(__file__).resolve().parents[1] / "analytics" / "duck"))


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
    parser.add_argument("--large", action="store_true", help="plan as for more than a GiB of files")
    parser.add_argument("--only", default=",".join(ALL), help="statistics, with commas between")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--inspect", action="store_true")
    kinds.add_argument("--together", action="store_true")
    kinds.add_argument("--archive", action="store_true")
    asked = parser.parse_args()
    if asked.large:
        exports.session_for = partial(planned_as_large, session_for)
    kind = inspected if asked.inspect else all_at_once if asked.together else archived if asked.archive else measured
    print(json.dumps(kind(asked)))


def planned_as_large(fit: Callable[[SparkSession, int], SparkSession], spark: SparkSession, size: int) -> SparkSession:
    """The session for input of this size, or for the least that counts as large."""
    return fit(spark, max(size, MIDDLE_BYTES + 1))


def all_at_once(asked: argparse.Namespace) -> dict[str, Any]:
    """All statistics, from the start of the session to the last row."""
    laps = Laps()
    session = open_session("strandline-bench", master="local[2]", memory=asked.memory)
    jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    laps.pids.append(jvm)
    laps.lap("start")
    digests = answered(session, asked)
    laps.lap("all")
    memory = {"jvm_mib": round(peak_mib(jvm)), "python_mib": round(peak_mib(os.getpid()))}
    session.stop()
    return {"times": laps.times, "cpu": laps.cpu, "digests": digests} | memory


def answered(session: SparkSession, asked: argparse.Namespace) -> dict[str, str]:
    """The digests of all statistics, requested together."""
    from oracle import digest

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


def inspected(asked: argparse.Namespace) -> dict[str, Any]:
    """What the plans read, and what the stages did."""
    with tempfile.TemporaryDirectory(prefix="strandline-spark-events-") as folder:
        said = " ".join(f"--conf {name}={value}" for name, value in settings(Path(folder)).items())
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{said} pyspark-shell"
        found = measured(asked)
        seen = ("read_samples_too", "in_python", "jvm_mib", "python_mib", "digests")
        return {name: found[name] for name in seen} | {"steps": steps_of(Path(folder))}


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """From the start of the session to its end."""
    from oracle import digest
    from scanned import datasets

    laps = Laps()
    session = open_session("strandline-bench", master="local[2]", memory=asked.memory)
    session.range(1).count()
    jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    laps.pids.append(jvm)
    laps.lap("start")
    describe = session.sparkContext.setJobDescription
    describe("transitions")
    scope = Scope(start_us=START_US, end_us=START_US + asked.hours * HOUR)
    silver = open_exports(session, [str(asked.root)])
    for table in (silver.transitions, silver.control_rows, silver.control, silver.terms):
        table.count()
    laps.lap("transitions")
    describe("looks")
    silver.looks.count()
    laps.lap("looks")
    digests, trespassers, in_python = {}, [], []
    for name in asked.only.split(","):
        statistic = ALL[name]
        describe(name)
        frame = result(statistic, silver, scope)
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        laps.lap(name)
        digests[name] = digest(statistic, scope, rows)
        if asked.inspect and not statistic.reads_samples and "samples" in datasets(frame):
            trespassers.append(name)
        if asked.inspect and "Python" in frame._jdf.queryExecution().executedPlan().toString():
            in_python.append(name)
        laps.lap("")
    memory = {"jvm_mib": round(peak_mib(jvm)), "python_mib": round(peak_mib(os.getpid()))}
    session.stop()
    plans = {"read_samples_too": trespassers, "in_python": in_python} if asked.inspect else {}
    return {"times": laps.times, "cpu": laps.cpu, "digests": digests} | memory | plans


if __name__ == "__main__":
    main()
