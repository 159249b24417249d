"""The cost of the statistics as text for docs/BENCHMARKS.md, from the measurements of `statistics_cost.py` alone.

Targets: all of them over 10 million events below 6 GiB and within 5 times DuckDB's time, without Spark's start; over 1
million in less than 60 s on two cores, with it; the time grows with the rows to a power of at most 1.15.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import linear_regression
from typing import Any

Measured = dict[str, Any]
SHARED = ("transitions", "looks")
LARGE = 10_000_000
MIDDLE = 1_000_000
MOST_MIB = 6_144
MOST_TIMES = 5.0
MOST_S = 60.0
MOST_POWER = 1.15


def total_s(of_engine: Measured) -> float:
    """All tables and all statistics, without the start of the JVM."""
    return math.fsum(s for name, s in of_engine["times"].items() if name != "start")


def total_cpu_s(of_engine: Measured) -> float:
    """The same in processor time, which is more reliable than wall-clock time on a busy machine."""
    return math.fsum(s for name, s in of_engine["cpu"].items() if name != "start")


def slope(results: Sequence[Measured]) -> float:
    """The power of the rows by which the processor time grows: a line through the logarithms."""
    points = [(math.log(r["rows"]), math.log(max(1e-2, total_cpu_s(r["spark"])))) for r in results]
    return linear_regression(*zip(*points, strict=True)).slope


def text_of(results: Sequence[Measured], asked: Measured) -> str:
    """The block."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        "## What the statistics cost",
        "",
        f"All statistics over one window of a generated day: {asked['partitions']:,} partitions with three replicas, "
        f"{asked['hours']} hours, seed {asked['seed']}, hourly files{_skew_of(asked)}. "
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
    lines += ["", *verdicts(results), "", *_facts(results)]
    return "\n".join(lines)


def _skew_of(asked: Measured) -> str:
    share = asked["hot_share"]
    return f", {share:.0%} of all looks at one partition" if share else ""


def memory_mib(of_engine: Measured) -> int:
    """The highest resident memory of JVM and Python, added up."""
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


def verdicts(results: Sequence[Measured]) -> list[str]:
    """A line for each target: met, missed, or not measured."""
    by_size = {result["asked"]: result for result in results}
    large, middle = by_size.get(LARGE), by_size.get(MIDDLE)
    power = slope(results) if len(results) > 1 else None
    runs = [(r["rows"], r[kind]) for r in results for kind in ("spark", "together") if kind in r]
    different = [f"{name} over {rows:,}" for rows, run in runs for name in run.get("different", [])]
    ratio = large and total_s(large["spark"]) / total_s(large["duckdb"])
    mib, wall_s = large and memory_mib(large["spark"]), middle and middle["together"]["wall_s"]
    equal = "both engines give equal results"
    of_runs = f", middle of {len(middle['together']['walls_s'])} runs" if middle else ""
    return [
        _verdict("10 million events in less than 6,144 MiB", mib, "MiB", MOST_MIB),
        _verdict("10 million events in at most 5 times DuckDB's time", ratio, "times", MOST_TIMES),
        _verdict(f"1 million events in less than 60 s with the start of the JVM{of_runs}", wall_s, "s", MOST_S),
        _verdict("the time grows with the rows to a power of at most 1.15", power, "as the power", MOST_POWER),
        f"- **missed**: {equal}; they differ in {', '.join(different)}" if different else f"- **met**: {equal}",
    ]


def _verdict(target: str, found: float | None, unit: str, most: float) -> str:
    if found is None:
        return f"- not measured: {target}"
    return f"- **{'met' if found <= most else 'missed'}**: {target}: {found:,.{2 if most < 100 else 0}f} {unit}"


def _facts(results: Sequence[Measured]) -> list[str]:
    """Figures beyond the targets that explain them: beside DuckDB, and as a report asks for them."""
    said = [
        f"- {r['rows']:,} rows: {total_s(r['spark']) / total_s(r['duckdb']):.1f} times DuckDB's time, "
        f"{total_cpu_s(r['spark']) / total_cpu_s(r['duckdb']):.1f} times its processor time."
        for r in results
    ]
    said += [_at_once(r) for r in results if "together" in r]
    return said


def _at_once(result: Measured) -> str:
    found = result["together"]
    walls = ", ".join(f"{wall:.1f}" for wall in found["walls_s"])
    return (
        f"- {result['rows']:,} rows as a report asks for them, several statistics at once: {walls} s from the start of "
        f"the process to its end. In the middle one {found['times']['start']:.1f} s were the start of Spark, and "
        f"{found['cpu']['all']:.1f} s of processor time and {memory_mib(found):,} MiB were used. With an archive of "
        f"classes (`strandline analytics archive-classes`), made before in {found['archive_s']:.0f} s, "
        f"{found['archive_mib']:,} MiB. One after the other and without the archive: {result['spark']['wall_s']:.1f} s."
    )
