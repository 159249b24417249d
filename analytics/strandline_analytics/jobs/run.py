"""What a batch run writes: the results of closed hours, each hour replaced as a whole, and nothing else.

Results lie under ``OUTPUT/results/stat=s10/dt=2026-11-21/hr=14/cluster=ID/rows.parquet``, one row per group; another
grouping than by partition has a folder of its own (``results_by_topic``, ``results_by_cluster``). ``cluster`` repeats
``cluster_id``, so that a run over one cluster leaves the results of others alone. ``_schema.md`` beside them says what
each column means, ``_written`` what was written of each hour, and from which files (`ledger`).

Each hour is computed by itself. An hour whose files and code are those of its ledger is left as it is, so a run over
the last day costs what changed in it, and a file that came late changes exactly the hours that follow from it.

Invariant: an hour's results follow from the files that its ``input_manifest_hash`` names and from the version of the
code, whatever range a run covers; writing them again writes the same rows in their order. An open hour is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from strandline import __version__
from strandline.export.layout import hour_folder
from strandline_analytics.jobs.ask import Question
from strandline_analytics.jobs.coverage import HourCoverage, HourState
from strandline_analytics.jobs.hours import TRANSITIONS_AFTER_US, covered, files_of_hour, files_of_hours, hash_of_hour
from strandline_analytics.jobs.ledger import Entry, read_ledger, write_ledger
from strandline_analytics.jobs.placing import PLACE, clear_unfinished, is_placed, place_rows
from strandline_analytics.jobs.schema_page import schema_page
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.sources.catalog import HOUR_US, ExportedFile
from strandline_analytics.sources.exports import read_exports
from strandline_analytics.sources.inspection import notices
from strandline_analytics.sources.places import write_text
from strandline_analytics.sources.trouble import NothingThere
from strandline_analytics.stats.definition import Statistic, with_any_value
from strandline_analytics.stats.together import together
from strandline_analytics.timestamps import with_times

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
    """How many rows there are of these hours now, by statistic."""
    unchanged: tuple[HourCoverage, ...] = ()
    """Hours whose results were there already, from the same files and by the same code."""

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
    near = files_of_hours(
        spark, question.inputs, cluster_id=question.cluster_id, start_us=question.start_us, end_us=question.end_us
    )
    hours = covered(spark, near, now_us=now_us, start_us=question.start_us, end_us=question.end_us)
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
    recompute: bool = False,
) -> Written:
    """Compute the closed ones among ``hours`` that changed, and write them.

    One run at a time writes to an output.

    Args:
        question: over whole hours (`whole_hours`).
        hours: of `hours_for`.
        output: a directory or URI.
        noticed: gets what has to be known of the input.
        recompute: compute also hours that did not change.
    """
    root = f"{output.rstrip('/')}/{_FOLDERS[question.grouping]}"
    closed = [hour for hour in hours if hour.state in _WRITTEN]
    rows = {statistic.id: 0 for statistic in question.statistics} if closed else {}
    unchanged: list[HourCoverage] = []
    if closed:
        first, last = min(hour.hour for hour in closed), max(hour.hour for hour in closed)
        files = files_of_hours(
            spark,
            question.inputs,
            start_us=first * HOUR_US,
            end_us=(last + 1) * HOUR_US,
            cluster_id=question.cluster_id,
        )
        noticed(notices(files))
        clear_unfinished(spark, root)
        for number in sorted({hour.hour for hour in closed}):
            same_hour = [hour for hour in closed if hour.hour == number]
            kept = (
                {} if recompute else {hour.cluster_id: _kept(spark, root, hour, question, files) for hour in same_hour}
            )
            stale = [hour for hour in same_hour if kept.get(hour.cluster_id) is None]
            unchanged += [hour for hour in same_hour if hour not in stale]
            counts = [entries for entries in kept.values() if entries is not None]
            if stale:
                counts += _write_hour(spark, question, stale, files, root)
            for entries in counts:
                for statistic in question.statistics:
                    rows[statistic.id] += entries[statistic.id].rows
        clear_unfinished(spark, root)
    write_text(spark, f"{root}/_schema.md", schema_page(question.grouping))
    return Written(folder=root, hours=tuple(hours), rows=rows, unchanged=tuple(unchanged))


def _kept(
    spark: SparkSession, root: str, hour: HourCoverage, question: Question, files: Sequence[ExportedFile]
) -> Mapping[str, Entry] | None:
    """What was written of an hour, if nothing of it has to be written again; else None."""
    reported, hashes = read_ledger(spark, root, hour), _hashes(question, files, hour)
    for statistic in question.statistics:
        entry = reported.get(statistic.id)
        if entry is None or entry.code_version != __version__:
            return None
        if entry.input_manifest_hash != hashes[statistic.reads_samples]:
            return None
        if entry.rows and not is_placed(spark, root, _folder(statistic, hour.hour), hour.cluster_id):
            return None
    return reported


def _hashes(question: Question, files: Sequence[ExportedFile], hour: HourCoverage) -> dict[bool, str]:
    """The hash of an hour's input, by whether a statistic reads samples."""
    kinds = {statistic.reads_samples for statistic in question.statistics}
    return {samples: hash_of_hour(files, hour.cluster_id, hour.hour, samples=samples) for samples in kinds}


def _write_hour(
    spark: SparkSession, question: Question, hours: Sequence[HourCoverage], files: Sequence[ExportedFile], root: str
) -> list[dict[str, Entry]]:
    """Write one hour of some clusters; what was written, by cluster and statistic."""
    number, clusters = hours[0].hour, [hour.cluster_id for hour in hours]
    scope = Scope(start_us=number * HOUR_US, end_us=(number + 1) * HOUR_US, step_us=HOUR_US, grouping=question.grouping)
    own = files_of_hour(files, number, clusters, samples=question.reads_samples)
    silver = read_exports(
        spark, own, samples=question.reads_samples, end_us=scope.end_us, beyond_us=TRANSITIONS_AFTER_US
    )
    written = [read_ledger(spark, root, hour) for hour in hours]
    hashes = {hour.cluster_id: _hashes(question, files, hour) for hour in hours}

    def write(statistic: Statistic, found: DataFrame) -> list[Entry]:
        own_hashes = {cluster: hashes[cluster][statistic.reads_samples] for cluster in clusters}
        named = _named(spark, with_any_value(statistic, silver, found), own_hashes)
        counts = _write(spark, named, root, statistic, scope, clusters)
        return [Entry(input_manifest_hash=own_hashes[cluster], rows=counts[cluster]) for cluster in clusters]

    asked = [(statistic, scope) for statistic in question.statistics]
    try:
        for statistic, own_entries in zip(question.statistics, together(silver, asked, write), strict=True):
            for entries, entry in zip(written, own_entries, strict=True):
                entries[statistic.id] = entry
    finally:
        silver.release()
    for hour, entries in zip(hours, written, strict=True):
        write_ledger(spark, root, hour, entries)
    return written


def _named(spark: SparkSession, found: DataFrame, hashes: Mapping[str, str]) -> DataFrame:
    """The rows, each with the hash of its own cluster's input and with the place of the cluster in ``hashes``."""
    rows = [(cluster, own, place) for place, (cluster, own) in enumerate(hashes.items())]
    names = spark.createDataFrame(rows, f"cluster_id string, _hash string, {PLACE} int")
    joined = found.join(F.broadcast(names), "cluster_id", "inner").withColumn("input_manifest_hash", F.col("_hash"))
    return joined.select(*found.columns, PLACE)


def _write(
    spark: SparkSession, found: DataFrame, root: str, statistic: Statistic, scope: Scope, clusters: Sequence[str]
) -> dict[str, int]:
    """Write the rows of a statistic; how many there are, by cluster."""
    values = {value.name for value in statistic.values}
    order = [name for name in statistic.columns(scope) if name in found.columns and name not in values]
    rows = with_times(found).repartition(1).sortWithinPartitions(PLACE, *order)
    # Counted on the way: a query of its own would be planned again, which costs more than it does.
    counts = Observation()
    places = [F.count_if(F.col(PLACE) == place).alias(f"_{place}") for place in range(len(clusters))]
    place_rows(spark, rows.observe(counts, *places), root, _folder(statistic, scope.start_us // HOUR_US), clusters)
    return {cluster: counts.get[f"_{place}"] for place, cluster in enumerate(clusters)}


def _folder(statistic: Statistic, hour: int) -> str:
    return f"stat={statistic.id}/{hour_folder(hour)}"
