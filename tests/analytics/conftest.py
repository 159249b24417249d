"""One Spark session for all tests of the analytics, and histories written by hand as their input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.export.schema import COLUMNS, spark_ddl
from strandline_analytics.session import open_session
from strandline_analytics.silver.events import check_stories, distinct_events
from strandline_analytics.silver.tables import Silver

HISTORIES = Path(__file__).parent / "histories"
# A history has a few dozen rows: one task per stage, no code compiled for each query.
_QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_DEFAULTS = {"schema_version": 1, "cluster_id": "c", "topic": "t", "topic_id": "T", "partition": 0, "node_id": -1,
             "incarnation": 1, "leader_epoch": 0, "controller_epoch": 1}  # fmt: skip


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """An embedded session: two threads, no page, UTC."""
    session = open_session("strandline-tests", master="local[2]", memory="1g")
    for name, value in _QUICK.items():
        session.conf.set(name, value)
    yield session
    session.stop()


def history_rows(text: str) -> list[dict[str, Any]]:
    """The events of a history: JSON lines; blank lines and lines that begin with # are for the reader.

    What a line leaves out is filled in: one cluster, one topic, one partition, the controller as emitter, seq and
    meta_offset counted. ``t`` is the time in milliseconds.
    """
    rows: list[dict[str, Any]] = []
    names = {column.name for column in COLUMNS}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        said = json.loads(line)
        number = len(rows) + 1
        row = _DEFAULTS | {"seq": number, "ts_wall_us": round(said.pop("t") * 1000)} | said
        row.setdefault("ts_mono_us", row["ts_wall_us"])
        if row["node_id"] == -1:
            row.setdefault("meta_offset", number)
        assert set(row) <= names, f"no such column: {set(row) - names}"
        rows.append(row)
    return rows


@pytest.fixture
def silver(spark: SparkSession) -> Callable[[str], Silver]:
    """Makes silver tables from the text of a history, or from the file of that name in `histories`."""

    def make(history: str) -> Silver:
        text = (HISTORIES / history).read_text(encoding="utf-8") if history.endswith(".jsonl") else history
        rows = spark.createDataFrame([_full(row) for row in history_rows(text)], spark_ddl())
        events = distinct_events(rows).cache()
        check_stories(events)
        return Silver(events, rows)

    return make


def _full(row: dict[str, Any]) -> dict[str, Any]:
    return {column.name: row.get(column.name) for column in COLUMNS}
