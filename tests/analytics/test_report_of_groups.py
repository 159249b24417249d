"""A report of an export in which there are consumer groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.schema import COLUMNS
from strandline_analytics.report.gather import gather
from strandline_analytics.report.groups import group_lines
from strandline_analytics.sources.exports import open_exports


@pytest.mark.timeout(600)
def test_groups_of_an_export_are_on_the_page(spark: SparkSession, tmp_path: Path) -> None:
    """Every group that was reported, with its rebalances, times without an owner and refused commits."""
    blank = dict.fromkeys(column.name for column in COLUMNS)
    text = (HISTORIES / "rebalances.jsonl").read_text(encoding="utf-8")
    write_export(tmp_path, [blank | row for row in history_rows(text)])

    lines = group_lines(gather(open_exports(spark, [str(tmp_path)]), [str(tmp_path)], end_us=60_000_000, steps=0))

    assert [line.group_id for line in lines] == ["batch", "late", "orders"]
    orders = lines[2]
    assert (orders.rebalances, orders.longest, orders.slowest) == ("2 and 1 unfinished", "at least 20 s", "m-b")
    assert (orders.unowned, orders.refused) == ("t-1, 20 s", "STALE_MEMBER_EPOCH: 3, UNKNOWN_MEMBER_ID: 4")
