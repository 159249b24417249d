"""Live rows equal those of Spark's batch once their windows are closed, to the last bit, through a restart.

One stream and one batch over many histories at once, distinguished by their clusters. The stream ends in the middle of
windows, of stalls and of flaps, and continues from its checkpoint over files that arrived since.
`test_stream_oracle.py` checks many more histories against the same definitions without Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.analytics.random_history import SECOND, random_history

from strandline.export.arrow import SCHEMA
from strandline.export.schema import COLUMNS, EVENT_TYPES, SAMPLES, spark_ddl
from strandline_analytics.scope import Scope
from strandline_analytics.silver.events import check_stories, distinct_events
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.trouble import InputTrouble
from strandline_analytics.stats.definition import result
from strandline_analytics.stream.figures import LIVE, columns_of
from strandline_analytics.stream.job import StreamJob, live_rows, start, writer
from strandline_analytics.stream.machine import Timing

# Two streaming queries with state and the batch of five statistics, on a machine that may be loaded.
pytestmark = pytest.mark.timeout(600)

HISTORIES = 8
START_US = 1_795_270_000 * SECOND
CUT_US = START_US + 70 * SECOND
"""When the stream is stopped; a window ends at 60 s and at 80 s."""
STEP_US = 20 * SECOND
DELAY_S = 5
TIMING = Timing(step_us=STEP_US, horizon_us=120 * SECOND)

Found = dict[tuple[Any, ...], dict[str, Any]]


def write_file(root: Path, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Place a file like an exporter, as new as its last event."""
    reported = [{key: value for key, value in row.items() if key != "reported_us"} for row in rows]
    path = root / "all" / "v1" / "transitions" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{name}")
    if name.endswith(".parquet"):
        every = [{column.name: row.get(column.name) for column in COLUMNS} for row in reported]
        pq.write_table(pa.Table.from_pylist(every, schema=SCHEMA), unfinished)
    else:
        unfinished.write_text("".join(json.dumps(row) + "\n" for row in reported))
    newest = max(row["ts_wall_us"] for row in reported) * 1_000
    os.utime(unfinished, ns=(newest, newest))
    unfinished.rename(path)


def heartbeat(cluster_id: str, at_us: int) -> dict[str, Any]:
    """Heartbeats move the watermark when nothing happens."""
    return {
        "schema_version": 1, "cluster_id": cluster_id, "event_type": "EXPORT_HEARTBEAT", "node_id": 9,
        "incarnation": 1, "seq": at_us // SECOND, "ts_wall_us": at_us, "ts_mono_us": at_us, "last_seq": 1,
    }  # fmt: skip


def run(spark: SparkSession, root: Path) -> None:
    """Run the stream over the current files, from where it stopped."""
    job = StreamJob(
        inputs=(str(root),), out=f"{root}-out", checkpoint=f"{root}-checkpoint", delay_s=DELAY_S, timing=TIMING
    )
    assert start(spark, job).awaitTermination(300)


def tables(rows: DataFrame) -> Silver:
    """The batch results of the same files."""
    is_sample = F.col("event_type").isin(*(name for name, kind in EVENT_TYPES.items() if kind.dataset == SAMPLES))
    events, beside = distinct_events(rows.where(~is_sample))
    events = events.cache()
    check_stories(events)
    return Silver(events, rows.where(is_sample).cache(), beside=beside)


def by_window(rows: DataFrame) -> Found:
    """Rows by their keys."""
    names = ("cluster_id", "topic_id", "partition", "window_start", "replica_id")
    found: Found = {}
    for row in rows.collect():
        values = row.asDict(recursive=True)
        key = tuple(values[name] for name in names if name in values)
        assert key not in found, f"{key} is there twice"
        found[key] = values
    return found


def differing(live: dict[str, Any], batch: dict[str, Any] | None) -> Any:
    """The values that are not equal, side by side."""
    return batch and {name: (value, batch[name]) for name, value in live.items() if value != batch[name]}


@pytest.mark.reads_stream
def test_final_rows_are_those_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Each row of S1, S8, S10, S15 and S18 is equal, and no row of the batch with known values is missing."""
    root = tmp_path / "export"
    rows = [row for n in range(HISTORIES) for row in random_history(n, cluster_id=f"c{n}", start_us=START_US)]
    end_us = max(row["ts_wall_us"] for row in rows)
    write_file(root, "n1-i1-1-1.jsonl", [row for row in rows if row["reported_us"] < CUT_US])
    run(spark, root)
    before = {row.window_start: row.final for row in live_rows(spark, f"{root}-out", LIVE["s10"]).collect()}
    write_file(root, "n1-i1-2-2.parquet", [row for row in rows if row["reported_us"] >= CUT_US])
    write_file(root, "n9-i1-1-1.jsonl", [heartbeat("c0", end_us + 400 * SECOND)])
    run(spark, root)

    # The cut was in a window that some histories had events in, after windows that were closed for good.
    assert {start for start, is_final in before.items() if not is_final} >= {START_US + 60 * SECOND}
    assert any(before.values())
    files = str(root / "all" / "v1" / "transitions")
    reader = spark.read.schema(spark_ddl())
    written = reader.json(f"{files}/*.jsonl").unionByName(reader.parquet(f"{files}/*.parquet"))
    silver = tables(written)
    scope = Scope(start_us=START_US, end_us=-(-end_us // STEP_US) * STEP_US, step_us=STEP_US)
    for name, statistic in LIVE.items():
        columns = [column for column in columns_of(statistic) if column != "final"]
        final = live_rows(spark, f"{root}-out", statistic).where("final").where(F.col("window_end") <= scope.end_us)
        live = by_window(final.select(*columns))
        batch = by_window(result(statistic, silver, scope).select(*columns))
        wrong = {key: differing(row, batch.get(key)) for key, row in live.items() if batch.get(key) != row}
        missing = {key: row for key, row in batch.items() if key not in live and row["coverage"]}

        assert (wrong, missing) == ({}, {}), name
        assert len(live) >= HISTORIES * 5, name
    other = StreamJob(inputs=(str(root),), out=f"{root}-out", checkpoint=f"{root}-new", timing=TIMING)
    with pytest.raises(InputTrouble, match="holds rows that another checkpoint"):
        start(spark, other)


def test_a_batch_that_runs_again_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    """After a failure between writing and committing, the same rows replace those that were written."""
    names = "stat STRING, cluster_id STRING, final BOOLEAN"
    rows = spark.createDataFrame([("s08", "c", True), ("s08", "c", False)], names)
    out = str(tmp_path / "out")
    for _ in range(2):
        writer(out)(rows, 3)

    found = spark.read.schema(f"{names}, batch BIGINT").parquet(out).collect()

    assert sorted((row.stat, row.final, row.batch) for row in found) == [("s08", False, 3), ("s08", True, 3)]
