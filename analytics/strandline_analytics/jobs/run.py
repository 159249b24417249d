"""Decides what a batch run writes: the results of closed hours, each hour replaced as a whole, and nothing else.

Results lie under ``OUTPUT/results/stat=s10/dt=2026-11-21/hr=14/cluster=ID/``, one row per group, an hour per row;
another grouping than by partition has a folder of its own (``results_by_topic``, ``results_by_cluster``). ``cluster``
repeats ``cluster_id``, so that a run over one cluster leaves the results of others alone. ``_schema.md`` beside them
says what each column means.

Invariant: an hour's results follow from the files that its ``input_manifest_hash`` names and from the version of the
code; writing them again writes the same rows. An open hour is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline_analytics.jobs.ask import Question
from strandline_analytics.jobs.coverage import HourCoverage, HourState, hour_text
from strandline_analytics.jobs.hours import covered, files_of_hours, hash_of_hour
from strandline_analytics.jobs.schema_page import schema_page
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.sources.catalog import HOUR_US, ExportedFile, find_exports
from strandline_analytics.sources.exports import needed, read_exports
from strandline_analytics.sources.inspection import notices
from strandline_analytics.sources.places import write_text
from strandline_analytics.sources.trouble import NothingThere
from strandline_analytics.stats.definition import Statistic, result

_WRITTEN = (HourState.CLOSED, HourState.CLOSED_INCOMPLETE)
_FOLDERS = {
    Grouping.PARTITION: "results",
    Grouping.TOPIC: "results_by_topic",
    Grouping.CLUSTER: "results_by_cluster",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a run did."""

    folder: str
    hours: tuple[HourCoverage, ...]
    """Every hour that was asked for, written or not."""
    rows: dict[str, int]
    """How many rows were written, by statistic."""

    @property
    def left_out(self) -> tuple[HourCoverage, ...]:
        """Hours that were not written: open, or nothing is there of them."""
        return tuple(hour for hour in self.hours if hour.state not in _WRITTEN)


def whole_hours(question: Question) -> Question:
    """The same question over whole hours, one row for each: the hours that the window touches."""
    start, end = question.start_us, question.end_us
    return replace(
        question,
        start_us=None if start is None else start // HOUR_US * HOUR_US,
        end_us=None if end is None else -(-end // HOUR_US) * HOUR_US,
        step_us=HOUR_US,
    )


def hours_for(spark: SparkSession, question: Question, *, now_us: int) -> list[HourCoverage]:
    """How complete the hours of a run are.

    Raises:
        NothingThere: there are none.
    """
    window = {"start_us": question.start_us, "end_us": question.end_us}
    near = files_of_hours(spark, question.inputs, cluster_id=question.cluster_id, **window)
    hours = covered(spark, near, now_us=now_us, **window)
    if not hours:
        raise NothingThere(
            f"{', '.join(question.inputs)} has no exported hour in that window; see: strandline analytics coverage"
        )
    return hours


def run(
    spark: SparkSession,
    question: Question,
    hours: Sequence[HourCoverage],
    output: str,
    *,
    noticed: Callable[[Sequence[str]], None] = lambda _: None,
) -> Written:
    """Compute the closed ones among ``hours`` and write them.

    Args:
        question: over whole hours (`whole_hours`).
        hours: of `hours_for`.
        output: a directory or URI.
        noticed: is told what has to be known of the input.
    """
    folder = f"{output.rstrip('/')}/{_FOLDERS[question.grouping]}"
    closed = [hour for hour in hours if hour.state in _WRITTEN]
    rows: dict[str, int] = {}
    if closed:
        first, last = min(hour.hour for hour in closed), max(hour.hour for hour in closed)
        scope = Scope(
            start_us=first * HOUR_US, end_us=(last + 1) * HOUR_US, step_us=HOUR_US, grouping=question.grouping
        )
        wanted = needed(scope.start_us, scope.end_us, samples=question.reads_samples)
        files = find_exports(spark, question.inputs, cluster_id=question.cluster_id, wanted=wanted)
        noticed(notices(files))
        silver = read_exports(spark, files, samples=question.reads_samples)
        for statistic in question.statistics:
            found = _of_hours(spark, result(statistic, silver, scope), statistic, files, closed)
            rows[statistic.id] = _write(spark, found, f"{folder}/stat={statistic.id}", scope, statistic)
    write_text(spark, f"{folder}/_schema.md", schema_page(question.grouping))
    return Written(folder=folder, hours=tuple(hours), rows=rows)


def _of_hours(
    spark: SparkSession,
    found: DataFrame,
    statistic: Statistic,
    files: Sequence[ExportedFile],
    closed: Sequence[HourCoverage],
) -> DataFrame:
    """The rows of closed hours, each with the hash of its own input and with where it is written."""
    places = []
    for hour in closed:
        day, _, number = hour_text(hour.hour).removesuffix("Z").partition("T")
        own = hash_of_hour(files, hour.cluster_id, hour.hour, samples=statistic.reads_samples)
        places.append((hour.cluster_id, hour.hour * HOUR_US, own, day, number, hour.cluster_id))
    names = "cluster_id string, window_start bigint, _hash string, dt string, hr string, cluster string"
    joined = found.join(F.broadcast(spark.createDataFrame(places, names)), ["cluster_id", "window_start"], "inner")
    return joined.withColumn("input_manifest_hash", F.col("_hash")).select(*found.columns, "dt", "hr", "cluster")


def _write(spark: SparkSession, found: DataFrame, folder: str, scope: Scope, statistic: Statistic) -> int:
    values = {value.name for value in statistic.values}
    order = [name for name in statistic.columns(scope) if name in found.columns and name not in values]
    rows = found.repartition(1).sortWithinPartitions("dt", "hr", "cluster", *order).cache()
    try:
        count = rows.count()
        rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(
            "dt", "hr", "cluster"
        ).parquet(folder)
    finally:
        rows.unpersist()
    return count
