"""Runs the live statistics: turns a job into a streaming query.

Invariant: everything that a restart needs is in the checkpoint; the same checkpoint belongs to the same results
folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, Window, functions as F
from pyspark.sql.streaming.query import StreamingQuery as Query
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from strandline_analytics.jvm import hadoop_files, hadoop_path
from strandline_analytics.pyspark_range import check_streams
from strandline_analytics.scope import PARTITION_KEY, with_times
from strandline_analytics.sources.places import literal, uri_of
from strandline_analytics.sources.trouble import InputTrouble
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.stream.carry import Carry
from strandline_analytics.stream.feed import feed
from strandline_analytics.stream.figures import columns_of, completed, ddl
from strandline_analytics.stream.machine import Timing, settle

# ---- processor
# Runs the machine inside Structured Streaming: state per partition of the log, woken by event-time timers.
#
# Invariant: nothing is decided here; the machine's kept state goes into the state store, and its rows are output.


class LivePartition(StatefulProcessor):
    """The live statistics of every partition; the key is (cluster_id, topic_id, partition)."""

    def __init__(self, timing: Timing, *, provisional: bool) -> None:
        """``provisional``: whether rows of open windows are written as well."""
        self._timing = timing
        self._provisional = provisional

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the kept states: the one that replaces closed windows, and the events of open ones."""
        self._handle = handle
        self._carry = handle.getValueState("carry", "carry STRING")
        self._stories = handle.getListState("stories", "story STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        """Process new events."""
        return self._settle(key, [row["story"] for row in rows if row["story"] is not None], timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """Called when the watermark has passed an awaited moment."""
        return self._settle(key, [], timerValues)

    def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def _settle(self, key: Any, news: list[str], timers: TimerValues) -> Iterator[Row]:
        if key[2] is None:
            # An event without a partition only moves the watermark.
            return
        kept = self._carry.get() if self._carry.exists() else None
        carry = Carry() if kept is None else Carry.from_json(kept[0])
        # Before the first watermark Spark reports -1 or 0.
        watermark_us = max(0, timers.getCurrentWatermarkInMs()) * 1_000
        if kept is not None and not self._provisional and self._is_early(carry, watermark_us):
            self._append(news)
            return
        before = [story for (story,) in self._stories.get()] if self._stories.exists() else []
        done = settle(carry, before + news, watermark_us=watermark_us, timing=self._timing)
        if kept is None or done.carry.is_done or done.carry.start_us != carry.start_us or carry.pending:
            self._carry.update((done.carry.to_json(),))
            self._stories.clear()
            self._append(done.rest)
        else:
            self._append(news)
        self._wake(done.wake_us)
        own = dict(zip(("cluster_id", "topic_id", "partition"), key, strict=True))
        for row in done.rows:
            if row["final"] or self._provisional:
                yield Row(**completed(row | own))

    def _is_early(self, carry: Carry, watermark_us: int) -> bool:
        """Whether no window can be closed yet, whatever the events are."""
        is_open = carry.start_us is not None and watermark_us < carry.start_us + self._timing.step_us
        return is_open and not carry.pending and not carry.is_done

    def _append(self, stories: list[str]) -> None:
        if stories:
            self._stories.appendList([(story,) for story in stories])

    def _wake(self, wake_us: int | None) -> None:
        wanted = None if wake_us is None else -(-wake_us // 1_000)
        known = list(self._handle.listTimers())
        for timer in known:
            if timer != wanted:
                self._handle.deleteTimer(timer)
        if wanted is not None and wanted not in known:
            self._handle.registerTimer(wanted)


# ---- results
# Writes and reads live rows: one folder per micro-batch; for each window the latest rows count.
#
#     OUT/final=true/batch=17/…parquet       rows of closed windows; written once
#     OUT/final=false/batch=17/…parquet      rows of open windows, as of that batch
#
# Invariant: a batch that is repeated after a failure replaces its earlier output, so every final row exists once.

_WINDOW = ("stat", *PARTITION_KEY, "window_start")


def writer(out: str) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`."""

    def write(rows: DataFrame, batch: int) -> None:
        numbered = with_times(rows).withColumn("batch", F.lit(batch).cast("bigint")).coalesce(1)
        mode = numbered.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        mode.partitionBy("final", "batch").parquet(uri_of(out))

    return write


def live_rows(spark: SparkSession, out: str, statistic: Statistic) -> DataFrame:
    """The rows of one statistic: final ones, and the latest provisional ones of open windows.

    Moments are given in microseconds and as TIMESTAMPs (`timestamps`).
    """
    reported = (
        spark.read.schema(f"{ddl()}, batch BIGINT").parquet(literal(uri_of(out))).where(F.col("stat") == statistic.id)
    )
    rank = F.struct("final", "batch")
    newest = reported.withColumn("_newest", F.max(rank).over(Window.partitionBy(*_WINDOW))).where(
        rank == F.col("_newest")
    )
    return with_times(newest.select(*columns_of(statistic)))


__all__ = ["DELAY_S", "Query", "StreamJob", "start", "trouble_of"]

_REPORTED_BY_WORKER = re.compile(r"\.(?:ConflictingEvents|UnknownFormat|TooManyWindows): (.+)")

DELAY_S = 900
"""The default delay: twice the five minutes after which files roll, including time for retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """A live job. ``trigger`` is an interval in Spark's syntax; None to process the present files and end."""

    inputs: tuple[str, ...]
    out: str
    checkpoint: str
    trigger: str | None = None
    delay_s: int = DELAY_S
    provisional: bool = True
    timing: Timing = field(default_factory=Timing)


def start(spark: SparkSession, job: StreamJob) -> Query:
    """Start the query; the caller waits for it or stops it.

    Raises:
        InputTrouble: the results folder belongs to another checkpoint.
        NeedsNewerSpark: this PySpark is too old for streams.
    """
    check_streams("`strandline analytics run` computes the same from closed hours")
    _check_belongs(spark, job)
    keyed = feed(spark, job.inputs, delay_s=job.delay_s).groupBy(*PARTITION_KEY)
    processor = LivePartition(job.timing, provisional=job.provisional)
    rows = keyed.transformWithState(processor, ddl(), "Append", "EventTime")
    stream = rows.writeStream.foreachBatch(writer(job.out)).option("checkpointLocation", uri_of(job.checkpoint))
    stream = stream.queryName("strandline-live").outputMode("append")
    if job.trigger is None:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=job.trigger).start()


def trouble_of(error: BaseException) -> InputTrouble | None:
    """The trouble with the input that a worker reported, extracted from Spark's error; None for any other error."""
    found = _REPORTED_BY_WORKER.search(str(error))
    return None if found is None else InputTrouble(found[1])


def _check_belongs(spark: SparkSession, job: StreamJob) -> None:
    # Batches are numbered by their checkpoint: a new one would overwrite the results of the old one.
    if _is_there(spark, job.out) and not _is_there(spark, f"{job.checkpoint.rstrip('/')}/metadata"):
        raise InputTrouble(
            f"{job.out} holds rows that another checkpoint than {job.checkpoint} wrote; give the checkpoint that they "
            "were written with, or another folder for the results"
        )


def _is_there(spark: SparkSession, name: str) -> bool:
    path = hadoop_path(spark, uri_of(name))
    return bool(hadoop_files(spark, path).exists(path))
