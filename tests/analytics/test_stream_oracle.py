"""The state machine against the statistics in DuckDB, without common code, over histories with faults."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.analytics.random_history import SECOND, random_history, story_text

from strandline.export.arrow import SCHEMA
from strandline.export.schema import COLUMNS, DATASETS, dataset_of
from strandline_analytics.scope import Scope
from strandline_analytics.stream.carry import Carry
from strandline_analytics.stream.feed import UNUSED_TYPES
from strandline_analytics.stream.figures import LIVE, completed
from strandline_analytics.stream.machine import Timing, settle

_DUCK = str(Path(__file__).parent / "duck")
if _DUCK not in sys.path:
    sys.path.append(_DUCK)

from oracle import Oracle, differences  # noqa: E402

START_US = 1_795_270_000 * SECOND
STEP_US = 20 * SECOND
TIMING = Timing(step_us=STEP_US, horizon_us=60 * SECOND)
AFTER_US = 200 * SECOND
"""So long after the last event everything is closed."""

DELAY_US = 3 * SECOND


def export(root: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One file per dataset."""
    for dataset in DATASETS:
        own = [row for row in rows if dataset_of(row["event_type"]) == dataset]
        plain = [{column.name: row.get(column.name) for column in COLUMNS} for row in own]
        path = root / "all" / "v1" / dataset / "dt=2026-11-21" / "hr=15" / "n1-i1-1-1.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(plain, schema=SCHEMA), path)


def live_rows(
    parts: Mapping[tuple[str, str, int], Sequence[Mapping[str, Any]]], timing: Timing
) -> list[dict[str, Any]]:
    """Final rows of every partition, its events given in three calls, with kept state going through its text form."""
    found = []
    for key, rows in parts.items():
        ordered = sorted(rows, key=lambda row: row["ts_wall_us"])
        third = len(ordered) // 3 + 1
        carry, rest = Carry(), list[str]()
        for first in (0, third, 2 * third):
            to_come = [row["ts_wall_us"] for row in ordered[first + third :]]
            texts = rest + [story_text(row) for row in ordered[first : first + third]]
            watermark = to_come[0] - DELAY_US if to_come else ordered[-1]["ts_wall_us"] + AFTER_US
            done = settle(carry, texts, watermark_us=watermark, timing=timing)
            carry, rest = Carry.from_json(done.carry.to_json()), done.rest
            own = dict(zip(("cluster_id", "topic_id", "partition"), key, strict=True))
            found += [completed(row | own) for row in done.rows if row["final"]]
    return found


def compare(root: Path, scope: Scope, live: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Live rows equal the oracle's, and where there are none nothing is known. Returns how many, by statistic."""
    oracle = Oracle(root, scope)
    oracle.make_tables()
    found: list[str] = []
    counts = {}
    for statistic in LIVE.values():
        ours = [row for row in live if row["stat"] == statistic.id and row["window_end"] <= scope.end_us]
        windows = {_window(row) for row in ours}
        theirs = oracle.rows(statistic)
        found += differences(statistic, scope, ours, [row for row in theirs if _window(row) in windows])
        beside = [row for row in theirs if _window(row) not in windows and row["coverage"]]
        found += [f"{statistic.id}: the machine lacks {row}" for row in beside]
        counts[statistic.id] = len(ours)
    oracle.close()
    assert found == []
    return counts


def _window(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["cluster_id"], row["topic_id"], row["partition"], row["window_start"])


def test_final_rows_are_those_of_the_oracle(tmp_path: Path) -> None:
    """Final rows equal the oracle's for every window of thirty histories."""
    histories = {f"c{n}": random_history(n, cluster_id=f"c{n}", start_us=START_US) for n in range(30)}
    every = [row for rows in histories.values() for row in rows]
    export(tmp_path, every)
    end_us = max(row["ts_wall_us"] for row in every) // STEP_US * STEP_US + STEP_US
    scope = Scope(start_us=START_US, end_us=end_us, step_us=STEP_US)
    parts = {(cluster_id, "T", 0): rows for cluster_id, rows in histories.items()}

    assert min(compare(tmp_path, scope, live_rows(parts, TIMING)).values()) > 30 * 5


@pytest.mark.parametrize("seed", [11])
def test_a_simulated_cluster(seed: int, tmp_path: Path) -> None:
    """The export of a cluster under faults gives the same rows in both ways, second by second."""
    command = [sys.executable, "-m", "strandline.cli", "sim", "replay", str(seed), "--export", str(tmp_path)]
    subprocess.run([*command, "--export-format", "parquet"], check=True, capture_output=True, timeout=100)
    rows = [row for path in tmp_path.rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    first_us, last_us = (pick(row["ts_wall_us"] for row in rows) for pick in (min, max))
    scope = Scope(start_us=first_us // SECOND * SECOND, end_us=(last_us // SECOND + 1) * SECOND, step_us=SECOND)
    parts: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        if row["partition"] is not None and row["event_type"] not in UNUSED_TYPES:
            parts.setdefault((row["cluster_id"], row["topic_id"], row["partition"]), []).append(row)
    timing = Timing(step_us=SECOND, horizon_us=60 * SECOND)

    assert min(compare(tmp_path, scope, live_rows(parts, timing)).values()) > 5
