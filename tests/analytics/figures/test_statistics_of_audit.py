"""S29 on a worked history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.layout import MANIFEST_FOLDER
from strandline.export.schema import COLUMNS
from strandline_analytics.scope import Scope
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

_OF_AUDIT = ["principal", "peer", "method", "resource_type", "resource_name", "rule", "before", "after"]
NO_WRITE = "client/* DENY WRITE topic LITERAL pay"


def test_refusals_are_counted_by_principal_and_rule(histories: Any) -> None:
    """A change is no refusal; what has no principal is counted as such, and a window without any has 0."""
    rows = histories.rows("s29", "refusals")
    counts = {(row.principal, row.rule): (row.refusals, row.methods) for row in rows}
    by_window = histories.rows("s29", "refusals", step_ms=20_000)

    assert counts == {
        ("client/x", None): (40, {"LeaderService/Fetch": 40}),
        ("client/x", NO_WRITE): (1, {"LeaderService/Produce": 1}),
        ("replica/2", "role"): (1, {"ControllerService/DeleteTopics": 1}),
        (None, None): (7, {}),
    }
    assert sorted((row.window_start // 1_000_000, row.refusals) for row in by_window) == [
        (0, 1),
        (0, 40),
        (20, 1),
        (40, 7),
    ]


def test_they_are_in_the_controllers_time(histories: Any) -> None:
    """Node 1 is 2 s ahead, so that what it wrote at 12 s was at 10 s; before, the count is 0, without a principal."""
    rows = histories.rows("s29", "refusals", step_ms=10_000)
    counts = sorted((row.window_start // 1_000_000, row.refusals) for row in rows)

    assert counts == [(0, 0), (10, 1), (10, 40), (20, 0), (30, 1), (40, 0), (50, 7)]


def test_an_export_from_before_the_audit_has_no_refusals(spark: SparkSession, tmp_path: Path) -> None:
    """Files without its columns are read: in a time that is known, no caller was refused anything."""
    said = history_rows((HISTORIES / "refusals.jsonl").read_text(encoding="utf-8"))
    blank = dict.fromkeys(column.name for column in COLUMNS)
    for path in write_export(tmp_path, [blank | row for row in said if row["event_type"] != "AUDIT"]):
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(_OF_AUDIT), path)
    for manifest in tmp_path.rglob(f"{MANIFEST_FOLDER}/**/*.json"):
        manifest.unlink()
    tables = open_exports(spark, [str(tmp_path)])
    (row,) = result(ALL["s29"], tables, Scope(start_us=0, end_us=60_000_000)).collect()
    tables.release()

    assert (row.principal, row.rule, row.refusals, row.methods) == (None, None, 0, None)
