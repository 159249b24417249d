"""All statistics by DuckDB over one export, in this process: times, memory and digests as one JSON line."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from day.shape import HOUR, START_US
from oracle import Oracle, digest
from statistics_spark import Laps, peak_mib

from strandline_analytics.scope import Scope
from strandline_analytics.stats import ALL


def main() -> None:
    """Open, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--memory", help="as Spark has it; DuckDB takes what it needs")
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--database", default=":memory:", help="a file for days that do not fit into memory")
    parser.add_argument("--slices", type=int, default=1, help="in how many parts to join groups with their partitions")
    asked = parser.parse_args()
    laps = Laps()
    scope = Scope(start_us=START_US, end_us=START_US + asked.hours * HOUR)
    oracle = Oracle(asked.root, scope, database=asked.database, slices=asked.slices)
    oracle.make_tables(samples=False)
    laps.lap("transitions")
    oracle.make_looks()
    laps.lap("looks")
    digests = {}
    for name, statistic in ALL.items():
        rows = oracle.rows(statistic)
        laps.lap(name)
        digests[name] = digest(statistic, scope, rows)
        laps.lap("")
    memory = {"python_mib": round(peak_mib(os.getpid()))}
    print(json.dumps({"times": laps.times, "cpu": laps.cpu, "digests": digests} | memory))


if __name__ == "__main__":
    main()
