"""The state machine against the statistics in DuckDB: two ways that share no code, over histories that go wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.analytics.random_history import SECOND, random_history, story_text

from strandline.export.arrow import SCHEMA
from strandline.export.schema import COLUMNS, DATASETS, dataset_of
from strandline_analytics.scope import Scope
from strandline_analytics.stream.carry import Carry
from strandline_analytics.stream.columns import LIVE, completed
from strandline_analytics.stream.machine import Timing, settle

_DUCK = str(Path(__file__).parent / "duck")
if _DUCK not in sys.path:
    sys.path.append(_DUCK)

from oracle import Oracle, differences  # noqa: E402

START_US = 1_795_270_000 * SECOND
STEP_US = 20 * SECOND
TIMING = Timing(step_us=STEP_US, horizon_us=60 * SECOND)
FOREVER_US = START_US + 10_000 * SECOND


def export(root: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One file per dataset."""
    for dataset in DATASETS:
        own = [row for row in rows if dataset_of(row["event_type"]) == dataset]
        plain = [{column.name: row.get(column.name) for column in COLUMNS} for row in own]
        path = root / "all" / "v1" / dataset / "dt=2026-11-21" / "hr=15" / "n1-i1-1-1.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(plain, schema=SCHEMA), path)


def test_final_rows_are_those_of_the_oracle(tmp_path: Path) -> None:
    """Of every window of sixty histories; where the machine tells nothing, nothing is known."""
    histories = {f"c{n}": random_history(n, cluster_id=f"c{n}", start_us=START_US) for n in range(60)}
    every = [row for rows in histories.values() for row in rows]
    export(tmp_path, every)
    end_us = max(row["ts_wall_us"] for row in every) // STEP_US * STEP_US + STEP_US
    scope = Scope(start_us=START_US, end_us=end_us, step_us=STEP_US)
    oracle = Oracle(tmp_path, scope)
    oracle.make_tables()
    live: list[dict[str, Any]] = []
    for cluster_id, rows in histories.items():
        done = settle(Carry(), [story_text(row) for row in rows], watermark_us=FOREVER_US, timing=TIMING)
        own = {"cluster_id": cluster_id, "topic_id": "T", "partition": 0}
        live += [completed(row | own) for row in done.rows if row["final"] and row["window_end"] <= end_us]
    found: list[str] = []
    for statistic in LIVE.values():
        ours = [row for row in live if row["stat"] == statistic.id]
        windows = {(row["cluster_id"], row["window_start"]) for row in ours}
        theirs = oracle.rows(statistic)
        beside = [row for row in theirs if (row["cluster_id"], row["window_start"]) not in windows]
        found += differences(statistic, scope, ours, [row for row in theirs if row not in beside])
        found += [f"{statistic.id}: the machine lacks {row}" for row in beside if row["coverage"]]

        assert len(ours) > 60 * 5
    oracle.close()

    assert found == []
