"""How the live statistics are run: what is asked for, and the query that it becomes.

Invariant: everything that a restart needs is in the checkpoint; the same checkpoint goes with the same results
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
# How the machine runs inside Structured Streaming: state per partition of the log, woken by event-time timers.
#
# Invariant: nothing is decided here; what the machine keeps goes into the state store, and what it says goes out.


class LivePartition(StatefulProcessor):
    """The live statistics of every partition; the key is (cluster_id, topic_id, partition)."""

    def __init__(self, timing: Timing, *, provisional: bool) -> None:
        """``provisional``: whether rows of open windows are written as well."""
        self._timing = timing
        self._provisional = provisional

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name what is kept: what replaces closed windows, and the events of open ones."""
        self._handle = handle
        self._carry = handle.getValueState("carry", "carry STRING")
        self._stories = handle.getListState("stories", "story STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        """Take new events."""
        return self._settle(key, [row["story"] for row in rows if row["story"] is not None], timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """The watermark has passed a moment that was waited for."""
        return self._settle(key, [], timerValues)

    def close(self) -> None:
        """Nothing is open."""

    def _settle(self, key: Any, news: list[str], timers: TimerValues) -> Iterator[Row]:
        if key[2] is None:
            # What is of no partition has moved the watermark, and that is all.
            return
        kept = self._carry.get() if self._carry.exists() else None
        carry = Carry() if kept is None else Carry.from_json(kept[0])
        # Before the first watermark Spark says -1 or 0.
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
        """Whether no window can be closed yet, whatever came."""
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
# Where live rows lie and which of them count: one folder per micro-batch, and the last word on each window.
#
#     OUT/final=true/batch=17/…parquet       rows of closed windows; written once
#     OUT/final=false/batch=17/…parquet      rows of open windows, as they stood at that batch
#
# Invariant: a batch that is run again after a failure replaces what it wrote, so every final row is there once.

_WINDOW = ("stat", *PARTITION_KEY, "window_start")


def writer(out: str) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls."""

    def write(rows: DataFrame, batch: int) -> None:
        numbered = with_times(rows).withColumn("batch", F.lit(batch).cast("bigint")).coalesce(1)
        mode = numbered.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        mode.partitionBy("final", "batch").parquet(uri_of(out))

    return write


def live_rows(spark: SparkSession, out: str, statistic: Statistic) -> DataFrame:
    """The rows of one statistic: final ones, and of windows that are open what was said of them last.

    Moments are there in microseconds and as TIMESTAMPs (`timestamps`).
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
"""Twice the five minutes after which files roll, and time for retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """What is run. ``trigger`` is an interval as Spark spells it; None: what is there now, then the end."""

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
    """What a worker found wrong with the input, out of all that Spark says about its end; None: something else."""
    found = _REPORTED_BY_WORKER.search(str(error))
    return None if found is None else InputTrouble(found[1])


def _check_belongs(spark: SparkSession, job: StreamJob) -> None:
    # Batches are numbered by their checkpoint: a new one would write over the results of the old.
    if _is_there(spark, job.out) and not _is_there(spark, f"{job.checkpoint.rstrip('/')}/metadata"):
        raise InputTrouble(
            f"{job.out} holds rows that another checkpoint than {job.checkpoint} wrote; give the checkpoint that they "
            "were written with, or another folder for the results"
        )


def _is_there(spark: SparkSession, name: str) -> bool:
    path = hadoop_path(spark, uri_of(name))
    return bool(hadoop_files(spark, path).exists(path))
