"""Live statistics equal those of a batch and of DuckDB, also when the stream is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracle import Oracle, differences
from pyspark.sql import DataFrame, SparkSession, functions as F
from tests.analytics.random_history import SECOND, random_history, story_text

from strandline.export.arrow import SCHEMA
from strandline.export.schema import COLUMNS, DATASETS, EVENT_TYPES, SAMPLES, dataset_of, spark_ddl
from strandline_analytics.commands import stream
from strandline_analytics.commands.stream import _await
from strandline_analytics.scope import Scope
from strandline_analytics.silver.events import check_stories, distinct_events
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.trouble import InputTrouble
from strandline_analytics.stats.definition import result
from strandline_analytics.stream.carry import Carry
from strandline_analytics.stream.feed import UNUSED_TYPES
from strandline_analytics.stream.figures import LIVE, columns_of, completed
from strandline_analytics.stream.job import StreamJob, live_rows, start, writer
from strandline_analytics.stream.machine import Timing, settle

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


@pytest.mark.timeout(600)
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


@pytest.mark.timeout(600)
def test_a_batch_that_runs_again_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    """After a failure between writing and committing, the same rows replace those that were written."""
    names = "stat STRING, cluster_id STRING, final BOOLEAN"
    rows = spark.createDataFrame([("s08", "c", True), ("s08", "c", False)], names)
    out = str(tmp_path / "out")
    for _ in range(2):
        writer(out)(rows, 3)

    found = spark.read.schema(f"{names}, batch BIGINT").parquet(out).collect()

    assert sorted((row.stat, row.final, row.batch) for row in found) == [("s08", False, 3), ("s08", True, 3)]


# `strandline analytics stream` ends between two micro-batches on request.


class Query:
    """A streaming query that does at each poll what the test says."""

    def __init__(self, look: Callable[[Query, int], None]) -> None:
        self._look = look
        self.looks = 0
        self.status = {"isTriggerActive": True}
        self.lastProgress: dict[str, Any] | None = None
        self.ends = False

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - as Spark names it
        """Poll once."""
        self.looks += 1
        assert self.looks < 20, "it never ended"
        self._look(self, self.looks)
        return self.ends


def interrupt() -> None:
    """What Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


def awaited(look: Callable[[Query, int], None]) -> Query:
    """A query that was waited for."""
    query = Query(look)
    before = signal.getsignal(signal.SIGINT)
    _await(cast(Any, query))
    assert signal.getsignal(signal.SIGINT) is before
    return query


def test_an_interrupt_waits_for_the_end_of_the_micro_batch(capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped at the second poll; the batch ends at the fifth."""

    def look(query: Query, number: int) -> None:
        if number == 2:
            interrupt()
        query.status["isTriggerActive"] = number < 5

    assert awaited(look).looks == 5
    assert capsys.readouterr().err.count("stopping after this micro-batch") == 1


def test_a_stream_that_never_rests_ends_when_the_next_batch_has_begun() -> None:
    """Batches follow each other without a pause: the number of the last one that ended shows it."""

    def look(query: Query, number: int) -> None:
        if number == 1:
            interrupt()
        query.lastProgress = {"batchId": number // 4}

    assert awaited(look).looks == 4


def test_a_second_interrupt_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second signal ends it without waiting."""
    monkeypatch.setattr(stream, "_SAME_S", 0.0)

    def look(query: Query, number: int) -> None:
        interrupt()

    with pytest.raises(KeyboardInterrupt):
        awaited(look)


def test_an_interrupt_that_is_reported_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` signals the process and its group; the micro-batch is still waited for."""
    monkeypatch.setattr(stream, "_SAME_S", 600.0)

    def look(query: Query, number: int) -> None:
        interrupt()
        query.status["isTriggerActive"] = number < 3

    assert awaited(look).looks == 3


def test_without_an_interrupt_it_ends_with_its_input() -> None:
    """Without an interrupt the stream reads the current input and ends."""

    def look(query: Query, number: int) -> None:
        query.ends = number == 3

    assert awaited(look).looks == 3


# The state machine against the statistics in DuckDB, without common code, over histories with faults.


TIMING_ORACLE = Timing(step_us=STEP_US, horizon_us=60 * SECOND)
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


def live_rows_oracle(
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

    assert min(compare(tmp_path, scope, live_rows_oracle(parts, TIMING_ORACLE)).values()) > 30 * 5


@pytest.mark.parametrize(("profile", "seed"), [("swarm", 11), ("moves", 9)])
def test_a_simulated_cluster(profile: str, seed: int, tmp_path: Path) -> None:
    """The export of a cluster under faults, or with moves, gives the same rows in both ways, second by second."""
    command = [sys.executable, "-m", "strandline.cli", "sim", "replay", str(seed), "--profile", profile]
    command += ["--export", str(tmp_path), "--export-format", "parquet"]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    rows = [row for path in tmp_path.rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    first_us, last_us = (pick(row["ts_wall_us"] for row in rows) for pick in (min, max))
    # Of the last second only a part is known: the batch ends with the controller's last word, the machine later.
    scope = Scope(start_us=first_us // SECOND * SECOND, end_us=last_us // SECOND * SECOND, step_us=SECOND)
    parts: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        if row["partition"] is not None and row["event_type"] not in UNUSED_TYPES:
            parts.setdefault((row["cluster_id"], row["topic_id"], row["partition"]), []).append(row)
    timing = Timing(step_us=SECOND, horizon_us=60 * SECOND)

    assert min(compare(tmp_path, scope, live_rows_oracle(parts, timing)).values()) > 5
