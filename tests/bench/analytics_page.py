"""Tells what the statistics cost: a text for docs/BENCHMARKS.md from what `analytics.py` measured, and nothing else.

Targets: all twenty over 10 million events below 6 GiB and within 5 times DuckDB's time, without Spark's start; over
1 million in less than 60 s on two cores, with it; the time grows with the rows to a power of at most 1.15.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

Measured = dict[str, Any]
SHARED = ("transitions", "looks")


def total_s(of_engine: Measured) -> float:
    """All tables and all statistics, without the start of the JVM."""
    return float(sum(s for name, s in of_engine["times"].items() if name != "start"))


def total_cpu_s(of_engine: Measured) -> float:
    """The same in processor time, which says more than the clock where others work too."""
    return float(sum(s for name, s in of_engine["cpu"].items() if name != "start"))


def slope(results: Sequence[Measured], name: str | None = None) -> float:
    """By which power of the rows the processor time grows, of all or of one: a line through the logarithms."""
    points = [
        (math.log(r["rows"]), math.log(max(1e-2, r["spark"]["cpu"][name] if name else total_cpu_s(r["spark"]))))
        for r in results
    ]
    mean_x, mean_y = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def text_of(results: Sequence[Measured], asked: Measured) -> str:
    """The block."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        "## What the statistics cost",
        "",
        f"All twenty over one window of a generated day: {asked['partitions']:,} partitions with three replicas, "
        f"{asked['hours']} hours, seed {asked['seed']}, hourly files. "
        "Each engine in a process of its own, two threads, the same files; "
        f"Spark with {asked['memory']} of heap. Rows are those in the files, doubles included.",
        f"Measured {now} on {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, nice {os.nice(0)}.",
        "",
        "| rows | engine | start s | tables s | statistics s | all s | CPU s | rows/s | MiB | load before, after |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        lines += [_line(result["rows"], engine, result[engine]) for engine in ("spark", "duckdb")]
    lines += ["", *_verdicts(results), "", *_table(results[-1])]
    return "\n".join(lines)


def memory_mib(of_engine: Measured) -> int:
    """The most that JVM and Python had resident, added up."""
    return int(of_engine.get("jvm_mib", 0)) + int(of_engine["python_mib"])


def _line(rows: int, engine: str, of_engine: Measured) -> str:
    times = of_engine["times"]
    tables = sum(times[name] for name in SHARED)
    whole = total_s(of_engine)
    start = f"{times['start']:.1f}" if "start" in times else "–"
    load = ", ".join(f"{each}" for each in of_engine["load"])
    return (
        f"| {rows:,} | {engine} | {start} | {tables:.1f} | {whole - tables:.1f} | {whole:.1f} "
        f"| {total_cpu_s(of_engine):.1f} | {rows / whole:,.0f} "
        f"| {memory_mib(of_engine):,} | {load} |"
    )


def _verdicts(results: Sequence[Measured]) -> list[str]:
    said = []
    for result in results:
        spark, duck = result["spark"], result["duckdb"]
        different = spark.get("different", [])
        agree = f"the engines differ in {', '.join(different)}" if different else "both engines give the same rows"
        said.append(
            f"- {result['rows']:,} rows: without its start Spark takes {total_s(spark) / total_s(duck):.1f} times as "
            f"long as DuckDB, {total_cpu_s(spark) / total_cpu_s(duck):.1f} times in processor time (wanted at 10 "
            f"million: at most 5); {spark['wall_s']:.0f} s with it (wanted at 1 million: below 60); "
            f"{memory_mib(spark):,} MiB (wanted at 10 million: below 6,144); {agree}."
        )
    if len(results) > 1:
        power = slope(results)
        said.append(f"- Processor time grows with the rows to the power of {power:.2f} (wanted: at most 1.15).")
    return said


def _table(result: Measured) -> list[str]:
    spark, duck = result["spark"]["times"], result["duckdb"]["times"]
    most = max((name for name in duck if name not in SHARED), key=lambda name: spark[name])
    return [
        f"Each by itself over {result['rows']:,} rows; `{most}` takes the longest in Spark.",
        "",
        "| | Spark s | CPU s | rows per s | DuckDB s | CPU s |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {spark[name]:.2f} | {result['spark']['cpu'][name]:.2f} | {result['rows'] / spark[name]:,.0f} "
            f"| {duck[name]:.2f} | {result['duckdb']['cpu'][name]:.2f} |"
            for name in duck
        ),
    ]
