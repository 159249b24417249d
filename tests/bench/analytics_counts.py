"""What Spark moves for each statistic of a day with a hot partition: counts that a busy machine does not change.

Run by `make bench WHAT=analytics-counts`. For every shared table and statistic: stages, tasks, processor time in tasks,
MiB read of files and of kept tables, MiB shuffled and spilled, and what the largest task of a stage read beside the
median one. Prints a table in Markdown and writes into no page.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analytics import measured
from analytics_page import memory_mib
from day.shape import Shape
from day.written import write_day

from strandline_analytics.stats import ALL

_SUMS = ("stages", "tasks", "cpu_s", "read_mib", "shuffled_mib", "spilled_mib")


def table(steps: dict[str, dict[str, Any]]) -> Iterator[str]:
    """One line for each step and one for their sums."""
    yield "| | stages | tasks | CPU s | read MiB | shuffled MiB | spilled MiB | largest task, median, MiB |"
    yield "|---|---|---|---|---|---|---|---|"
    whole = {name: round(sum(step[name] for step in steps.values()), 1) for name in _SUMS}
    for name, step in (*steps.items(), ("all", whole | {"largest": None})):
        largest = ", ".join(f"{mib:,.1f}" for mib in step["largest"]) if step["largest"] else "–"
        yield f"| {name} | {' | '.join(f'{step[column]:,}' for column in _SUMS)} | {largest} |"


def main() -> None:
    """Generate, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--hot-share", type=float, default=0.5, help="of all looks: those at one partition")
    parser.add_argument("--memory", default="4g", help="of Spark's driver")
    parser.add_argument("--only", default=",".join(ALL), help="statistics, with commas between")
    parser.add_argument("--large", action="store_true", help="plan as for more than a GiB of files")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-day-") as folder:
        size = {name: getattr(asked, name) for name in ("events", "partitions", "hours", "hot_share")}
        shape = Shape(**size)
        rows = write_day(shape, Path(folder))
        more = ["--inspect", "--only", asked.only, *(["--large"] if asked.large else [])]
        found = measured("spark", Path(folder), rows, asked, *more)
    print(f"{rows:,} rows, {asked.hot_share:.0%} of the looks at one partition; {memory_mib(found):,} MiB at most\n")
    print("\n".join(table({name: step for name, step in found["steps"].items() if name})))


if __name__ == "__main__":
    main()
