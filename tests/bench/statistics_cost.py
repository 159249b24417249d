"""The cost of the statistics, in Spark and in DuckDB, on the same generated day.

Run by `make bench WHAT=analytics`. Each size and engine is a process of its own, so that memory is that of one run; the
sizes increase, to show how the cost grows with the rows. Writes its block of docs/BENCHMARKS.md at the end. Wall-clock
figures of a busy machine say little: the load average is printed beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from child import HERE
from day.shape import Shape
from day.written import write_day
from kept import DOCS, keep
from statistics_page import MIDDLE as TOGETHER, text_of, verdicts

LIMIT_S = 3_600
ROUNDS = 3
_NO_CACHE = os.devnull
"""Without an archive of classes that this user may have: a user who repeats the run may have none."""


def measured(
    kind: str,
    root: Path,
    rows: int,
    asked: argparse.Namespace,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One run of one engine in a process of its own."""
    command = [sys.executable, str(HERE / "statistics_engines.py"), kind, str(root)]
    command += ["--memory", asked.memory, "--hours", str(asked.hours)]
    before = os.getloadavg()[0]
    began = time.perf_counter()
    variables = os.environ | dict(environment or {"XDG_CACHE_HOME": _NO_CACHE})
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=variables)
    wall_s = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{kind} failed over {rows:,} rows:\n{done.stderr[-3_000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found | {"wall_s": wall_s, "load": [round(before, 1), round(os.getloadavg()[0], 1)], "rows": rows}


def compare(root: Path, size: int, rows: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Both engines over one day; they must agree."""
    spark, duck = (measured(engine, root, rows, asked) for engine in ("spark", "duckdb"))
    for name, digest in spark.pop("digests").items():
        if duck["digests"].get(name) != digest:
            print(f"  {name}: the engines give different rows over {rows:,} events", flush=True)
            spark.setdefault("different", []).append(name)
    expected = duck.pop("digests")
    together = {"together": as_a_report_asks(root, rows, asked, expected)} if size == TOGETHER else {}
    return {"asked": size, "rows": rows, "spark": spark, "duckdb": duck} | together


def as_a_report_asks(root: Path, rows: int, asked: argparse.Namespace, expected: dict[str, str]) -> dict[str, Any]:
    """All statistics as a report requests them: together, with the start of the JVM and an archive of classes.

    The archive is made before, in a cache of this benchmark's own; the time for that is reported. One timing says
    little: the whole is done `ROUNDS` times, and the median run is reported.
    """
    with tempfile.TemporaryDirectory(prefix="strandline-classes-") as cache:
        own = {"XDG_CACHE_HOME": cache}
        made = measured("archive", root, rows, asked, own)
        runs = [measured("together", root, rows, asked, own) for _ in range(ROUNDS)]
    different = {name for run in runs for name, digest in run.pop("digests").items() if expected[name] != digest}
    runs.sort(key=lambda run: run["wall_s"])
    walls = {"different": sorted(different), "walls_s": [run["wall_s"] for run in runs]}
    return runs[ROUNDS // 2] | walls | {name: made[name] for name in ("archive_s", "archive_mib")}


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", default="1000000,3000000,10000000", help="sizes, with commas between")
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hot-share", type=float, default=0.0, help="of all looks: those at one partition")
    parser.add_argument("--memory", default="4g", help="of Spark's driver")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    asked = parser.parse_args()
    results = []
    sizes = [int(size) for size in asked.events.split(",")]
    for events in sizes:
        with tempfile.TemporaryDirectory(prefix="strandline-day-") as folder:
            shape = Shape(
                seed=asked.seed, events=events, partitions=asked.partitions, hours=asked.hours,
                hot_share=asked.hot_share,
            )  # fmt: skip
            rows = write_day(shape, Path(folder))
            print(f"{rows:,} rows written", flush=True)
            results.append(compare(Path(folder), events, rows, asked))
            print(json.dumps(results[-1]), flush=True)
    keep("analytics", text_of(results, vars(asked)), asked.docs)
    print("\n".join(["", *verdicts(results)]))


if __name__ == "__main__":
    main()
