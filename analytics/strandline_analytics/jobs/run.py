"""The batch run: writes the results of closed hours, each hour replaced as a whole, and nothing else.

The format decides where results go, and how existing ones are recognized: `parquet_results`, or `tables/hours.py`.

Each hour is computed by itself. An hour whose files and code are those that its results name is left as it is, so a run
over the last day costs only what changed in it, and a late file changes exactly the hours that follow from it.

Invariant: an hour's results follow from the files that its ``input_manifest_hash`` names and from the version of the
code, whatever range a run covers; writing them again writes the same rows in their order. An open hour is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession, functions as F

from strandline import __version__
from strandline_analytics.jobs import coverage
from strandline_analytics.jobs.ask import Question
from strandline_analytics.jobs.results import PLACE, ResultEntry, Results
from strandline_analytics.scope import HOUR_US, Scope, with_times
from strandline_analytics.sources.catalog import ExportedFile
from strandline_analytics.sources.exports import read_exports
from strandline_analytics.sources.inspection import notices
from strandline_analytics.sources.trouble import NothingThere
from strandline_analytics.stats.definition import Statistic, with_any_value
from strandline_analytics.stats.together import together

_WRITTEN = (coverage.HourState.CLOSED, coverage.HourState.CLOSED_INCOMPLETE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of a run."""

    folder: str
    hours: tuple[coverage.HourCoverage, ...]
    """Every hour that was asked for, written or not."""
    rows: dict[str, int]
    """The current number of rows of these hours, by statistic."""
    places: dict[str, str]
    """The place of the rows, by statistic: a folder, or a table."""
    unchanged: tuple[coverage.HourCoverage, ...] = ()
    """Hours whose results already existed, from the same files and by the same code."""

    @property
    def left_out(self) -> tuple[coverage.HourCoverage, ...]:
        """Hours that were not written: they are open, or nothing of them is there."""
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


def hours_for(spark: SparkSession, question: Question, *, now_us: int) -> list[coverage.HourCoverage]:
    """How complete the hours of a run are.

    Raises:
        NothingThere: there are no hours.
    """
    near = coverage.files_of_hours(
        spark, question.inputs, cluster_id=question.cluster_id, start_us=question.start_us, end_us=question.end_us
    )
    hours = coverage.covered(spark, near, now_us=now_us, start_us=question.start_us, end_us=question.end_us)
    if not hours:
        raise NothingThere(
            f"{', '.join(question.inputs)} has no exported hour in that window; see: strandline analytics coverage"
        )
    return hours


def run(
    spark: SparkSession,
    question: Question,
    hours: Sequence[coverage.HourCoverage],
    results: Results,
    *,
    noticed: Callable[[Sequence[str]], None] = lambda _: None,
    recompute: bool = False,
) -> Written:
    """Compute the closed ones among ``hours`` that changed, and write them.

    One run at a time writes to the same results.

    Args:
        question: a question over whole hours (`whole_hours`).
        hours: the hours from `hours_for`.
        results: the destination, of the question's grouping.
        noticed: gets remarks on the input.
        recompute: also compute hours that did not change.

    Raises:
        InputTrouble: the rows cannot be added to the destination.
    """
    closed = [hour for hour in hours if hour.state in _WRITTEN]
    unchanged: list[coverage.HourCoverage] = []
    results.begin(question.statistics, closed)
    if closed:
        first, last = min(hour.hour for hour in closed), max(hour.hour for hour in closed)
        files = coverage.files_of_hours(
            spark,
            question.inputs,
            start_us=first * HOUR_US,
            end_us=(last + 1) * HOUR_US,
            cluster_id=question.cluster_id,
        )
        noticed(notices(files))
        for number in sorted({hour.hour for hour in closed}):
            same_hour = [hour for hour in closed if hour.hour == number]
            stale = [hour for hour in same_hour if recompute or not _is_written(results, hour, question, files)]
            unchanged += [hour for hour in same_hour if hour not in stale]
            if stale:
                _write_hour(spark, question, stale, files, results)
    results.end()
    rows = results.count(question.statistics, closed)
    return Written(
        folder=results.shown,
        hours=tuple(hours),
        rows=rows,
        places={one.id: results.place(one) for one in question.statistics},
        unchanged=tuple(unchanged),
    )


def _is_written(
    results: Results, hour: coverage.HourCoverage, question: Question, files: Sequence[ExportedFile]
) -> bool:
    """Whether the hour is written and up to date."""
    known, hashes = results.known(hour), _hashes(question, files, hour)
    return all(_is_same(known.get(one.id), hashes[one.reads_samples]) for one in question.statistics)


def _is_same(entry: ResultEntry | None, own_hash: str) -> bool:
    return entry is not None and entry.code_version == __version__ and entry.input_manifest_hash == own_hash


def _hashes(question: Question, files: Sequence[ExportedFile], hour: coverage.HourCoverage) -> dict[bool, str]:
    """The hash of an hour's input, by whether it includes samples."""
    kinds = {statistic.reads_samples for statistic in question.statistics}
    return {samples: coverage.hash_of_hour(files, hour.cluster_id, hour.hour, samples=samples) for samples in kinds}


def _write_hour(
    spark: SparkSession,
    question: Question,
    hours: Sequence[coverage.HourCoverage],
    files: Sequence[ExportedFile],
    results: Results,
) -> None:
    """Write one hour of some clusters."""
    number, clusters = hours[0].hour, [hour.cluster_id for hour in hours]
    scope = Scope(start_us=number * HOUR_US, end_us=(number + 1) * HOUR_US, step_us=HOUR_US, grouping=question.grouping)
    own = coverage.files_of_hour(files, number, clusters, samples=question.reads_samples)
    silver = read_exports(
        spark, own, samples=question.reads_samples, end_us=scope.end_us, beyond_us=coverage.TRANSITIONS_AFTER_US
    )
    hashes = {hour.cluster_id: _hashes(question, files, hour) for hour in hours}

    def write(statistic: Statistic, found: DataFrame) -> None:
        own_hashes = {cluster: hashes[cluster][statistic.reads_samples] for cluster in clusters}
        named = _named(spark, with_any_value(statistic, silver, found), own_hashes)
        results.write(statistic, _ordered(named, statistic, scope), number, own_hashes)

    asked = [(statistic, scope) for statistic in question.statistics]
    try:
        for _ in together(silver, asked, write):
            pass
    finally:
        silver.release()
    for hour in hours:
        results.finish(hour)


def _named(spark: SparkSession, found: DataFrame, hashes: Mapping[str, str]) -> DataFrame:
    """The rows, each with the hash of its own cluster's input and with the index of the cluster in ``hashes``."""
    rows = [(cluster, own, place) for place, (cluster, own) in enumerate(hashes.items())]
    names = spark.createDataFrame(rows, f"cluster_id string, _hash string, {PLACE} int")
    joined = found.join(F.broadcast(names), "cluster_id", "inner").withColumn("input_manifest_hash", F.col("_hash"))
    return joined.select(*found.columns, PLACE)


def _ordered(found: DataFrame, statistic: Statistic, scope: Scope) -> DataFrame:
    """The rows ordered by cluster and identifying columns, with their moments as TIMESTAMPs too."""
    values = {value.name for value in statistic.values}
    order = [name for name in statistic.columns(scope) if name in found.columns and name not in values]
    return with_times(found).repartition(1).sortWithinPartitions(PLACE, *order)
