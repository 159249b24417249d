"""How the live statistics are run: what is asked for, and the query that it becomes.

Invariant: everything that a restart needs is in the checkpoint; the same checkpoint goes with the same results folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery as Query

from strandline_analytics.jvm import hadoop_files, hadoop_path
from strandline_analytics.pyspark_range import check_streams
from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.sources.places import uri_of
from strandline_analytics.sources.trouble import InputTrouble
from strandline_analytics.stream.columns import ddl
from strandline_analytics.stream.feed import feed
from strandline_analytics.stream.machine import Timing
from strandline_analytics.stream.processor import LivePartition
from strandline_analytics.stream.results import writer

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
