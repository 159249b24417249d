"""Two controllers whose clocks differ are brought into the time of the first, or it is said that they cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.schema import COLUMNS
from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

pytestmark = pytest.mark.timeout(300)

S, LATER_US = 1_000_000, 3_600_000_000
_BLANK = dict.fromkeys(column.name for column in COLUMNS)
_TIMES = ("ts_wall_us", "ts_mono_us")


def _rows() -> list[dict[str, Any]]:
    """The history an hour later, because files have no hours before 1970."""
    rows = history_rows((HISTORIES / "two_controllers.jsonl").read_text(encoding="utf-8"))
    return [_BLANK | row | {name: row[name] + LATER_US for name in _TIMES} for row in rows]


def _opened(spark: SparkSession, root: Path, rows: list[dict[str, Any]]) -> Silver:
    write_export(root, rows)
    return open_exports(spark, [str(root)])


def _row(tables: Silver, stat: str) -> Any:
    scope = Scope(start_us=LATER_US, end_us=LATER_US + 60 * S)
    rows = [row for row in result(ALL[stat], tables, scope).collect() if row.partition == 0]
    (row,) = [one for one in rows if "replica_id" not in one or one.replica_id == 3]
    return row


def test_the_second_controllers_events_are_in_the_first_ones_time(spark: SparkSession, tmp_path: Path) -> None:
    """5 s by the median of three nodes, one of whose own clock was set: figures as if the clocks agreed."""
    tables = _opened(spark, tmp_path, _rows())
    states, rejoins, lag = (_row(tables, stat) for stat in ("s10", "s12", "s01"))

    assert (states.at_min_us, rejoins.rejoins, rejoins.max_us) == (30 * S, 1, 30 * S)
    assert (lag.mean_records, lag.max_records) == (5.0, 10)
    (said,) = tables.kafka_sources
    assert said == "the clock of controller 2 is 5.000 s ahead of the first one's, and its times are corrected by that"


def test_controllers_that_agree_or_were_not_compared_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Within the errors of measurement nothing is moved; without a node that both measured, that is said."""
    same = [row | {"offset_us": 50_000} if row["event_type"] == "CLOCK_SAMPLE" else row for row in _rows()]
    apart = [
        row | {"subject_node_id": 9} if row["event_type"] == "CLOCK_SAMPLE" and row["incarnation"] == 2 else row
        for row in _rows()
    ]
    agreed, unknown = (_opened(spark, tmp_path / name, rows) for name, rows in (("same", same), ("apart", apart)))

    assert (_row(agreed, "s10").at_min_us, agreed.kafka_sources) == (35 * S, ())
    assert _row(unknown, "s10").at_min_us == 35 * S
    assert unknown.kafka_sources == ("the clocks of controllers 1 and 2 were never compared: no node's was by both",)
