"""Selects the rows of an export that answer a question, and makes silver tables of them.

It reads the hours of the window and everything earlier that the state at its start can depend on: transitions of
`TRANSITIONS_BEFORE_H` hours (every hour begins with a snapshot; stays and flaps reach further back), samples of the
hour in which a sample may still be valid.

Invariant: schemas are given, never inferred; samples are read only on request.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from strandline.export import layout
from strandline.export.schema import (
    COLUMNS,
    CONTROLLER_NODE_ID,
    DATASETS,
    OBSERVER,
    SAMPLES,
    TRANSITIONS,
    Column as ColumnOfSchema,
    spark_ddl,
)
from strandline_analytics.session import carried_out_in, session_for, side_by_side
from strandline_analytics.silver.clocks import Ahead, clocks_ahead, in_one_time
from strandline_analytics.silver.events import FilesWith, check_copies, check_stories, distinct_events, once_each
from strandline_analytics.silver.kept import kept, tables_are_rows
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.catalog import ExportedFile, find_exports, input_hash
from strandline_analytics.sources.inspection import apart_and_doubled, cut_line, inspect, is_cut
from strandline_analytics.sources.kafka.source_words import LOOKING, Level, Levels, levels_of, source_words
from strandline_analytics.sources.places import literal

TRANSITIONS_BEFORE_H = 24
"""Hours of transitions read before the window; earlier beginnings are reported as of the first snapshot."""

_MOST_CONTROLLER_EPOCH = (1 << 31) - 1
"""The incarnation of a metadata log's events is a controller epoch of Kafka; a collector's is a time of day in ms."""

_CORRUPT = "_corrupt_record"

_TELLING = ("seq", "cluster_id", "event_type")
"""Columns that every event has; only a few, because a query that reads any column reads these too."""

_BOUNDING = "ts_wall_us"
"""The column by which rows are filtered before they are kept (`_until`)."""

SAMPLES_BEFORE_US = 600_000_000
"""How long before the window a sample may be that is still valid in it, us."""


def open_exports(
    spark: SparkSession,
    inputs: Sequence[str],
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    cluster_id: str | None = None,
    samples: bool = True,
) -> Silver:
    """Silver tables over one or more exports.

    Args:
        inputs: directories or URIs: roots of exports, or folders of clusters below them.
        start_us: the start of the window, us since 1970; None for the beginning.
        end_us: the moment before which the window ends; None for the end.
        cluster_id: only this cluster; None for all clusters, distinguished by ``cluster_id``.
        samples: whether statistics of samples will be computed.

    Raises:
        InputTrouble: see `sources.trouble`.
        ConflictingEvents: one event id has two contents.
    """
    files = find_exports(spark, inputs, cluster_id=cluster_id, wanted=needed(start_us, end_us, samples=samples))
    return read_exports(spark, files, samples=samples)


def read_exports(
    spark: SparkSession,
    files: Sequence[ExportedFile],
    *,
    samples: bool = True,
    end_us: int | None = None,
    beyond_us: int = 0,
) -> Silver:
    """Silver tables over files that were found.

    Args:
        end_us: partitions that were first reported later are not part of this question; None if all are.
        beyond_us: transitions later than this after ``end_us`` do not count, us.
    """
    inspect(files)
    size = {name: sum(file.size_bytes for file in files if file.dataset == name) for name in DATASETS}
    spark, alone = session_for(spark, sum(size.values())), session_for(spark, size[TRANSITIONS])

    def fit(query: DataFrame, with_samples: bool) -> DataFrame:
        return carried_out_in(spark if with_samples else alone, query)

    until_us = None if end_us is None else end_us + beyond_us

    levels = levels_of(files)
    transitions = [file for file in files if file.dataset == TRANSITIONS]
    ahead, said = _clocks_ahead(spark, transitions)

    def events() -> tuple[DataFrame, DataFrame | None]:
        return _events(spark, transitions, lambda rows: _until(_once(in_one_time(rows, ahead), levels), until_us), fit)

    def sampled() -> DataFrame | None:
        if not samples:
            return None
        return _best(_samples(spark, [file for file in files if file.dataset == SAMPLES]), levels)

    (kept_events, beside), kept_samples = side_by_side(spark, events, sampled)
    words = (*source_words(files), *said)
    return Silver(kept_events, kept_samples, input_hash(files), end_us, fit, beside, levels, words)


def _clocks_ahead(spark: SparkSession, files: Sequence[ExportedFile]) -> tuple[Ahead, list[str]]:
    """Compare controllers of clusters that had several processes; their files show that most had one."""
    own = {(file, part.incarnation) for file in files for part in file.ranges if part.node_id == CONTROLLER_NODE_ID}
    processes = Counter(cluster for cluster, _ in {(file.cluster_id, incarnation) for file, incarnation in own})
    several = {file for file, _ in own if processes[file.cluster_id] > 1}
    return clocks_ahead(read_rows(spark, sorted(several, key=lambda file: file.uri))) if several else ({}, [])


def _events(
    spark: SparkSession,
    files: Sequence[ExportedFile],
    asked: Callable[[DataFrame], DataFrame],
    fit: Callable[[DataFrame, bool], DataFrame],
) -> tuple[DataFrame, DataFrame | None]:
    """Distinct transitions, kept, and the other table kept for them (`events.distinct_events`).

    Args:
        asked: filters written rows by the question.
    """

    def rows(some: Sequence[ExportedFile]) -> DataFrame:
        return asked(read_rows(spark, some, whole=tables_are_rows(spark)))

    apart, doubled = apart_and_doubled(files)
    if not doubled:
        return kept(fit(once_each(rows(apart)), False)), None
    events, beside = distinct_events(rows(doubled))
    if apart:
        events = once_each(rows(apart)).unionByName(events)
    events = kept(fit(events, False))
    check_stories(events, files_with(spark, doubled))
    return events, beside


def _samples(spark: SparkSession, files: Sequence[ExportedFile]) -> DataFrame:
    """The rows of samples as they were written. Copies stay, because readers remove them; they must be equal.

    Only files that may share an event are checked for this; in a whole export there are none.
    """
    _, doubled = apart_and_doubled(files)
    is_kept = tables_are_rows(spark)
    rows = read_rows(spark, files, whole=is_kept)
    # Otherwise each of a dozen queries would open every file.
    rows = kept(rows) if is_kept else rows
    if doubled:
        check_copies(rows if is_kept else read_rows(spark, doubled), files_with(spark, doubled))
    return rows


def files_with(spark: SparkSession, files: Sequence[ExportedFile]) -> FilesWith:
    """A function that finds the files that hold an event; it reads them all."""

    def found(identity: Mapping[str, Any]) -> list[str]:
        is_it = reduce(and_, (F.col(name) == value for name, value in identity.items()))
        names = read_rows(spark, files).withColumn("_file", F.input_file_name()).where(is_it)
        return sorted(row["_file"] for row in names.select("_file").distinct().collect())

    return found


def _once(rows: DataFrame, kafka: Levels) -> DataFrame:
    """The rows without a collector's reports of the cluster's state, if the metadata log has every change of it.

    A collector's rows have no partition epoch, so they have no place in the order of the log's rows.
    """
    both = [cluster for cluster, levels in kafka.items() if {Level.METADATA_LOG, Level.COLLECTOR} <= levels]
    if not both:
        return rows
    # A collector's heartbeats are not a controller's: they do not show that nothing was decided.
    is_collectors = (F.col("node_id") == CONTROLLER_NODE_ID) & (F.col("incarnation") > _MOST_CONTROLLER_EPOCH)
    return rows.where(~(F.col("cluster_id").isin(*both) & is_collectors))


def _best(rows: DataFrame, kafka: Levels) -> DataFrame:
    """The rows without Prometheus samples of clusters that also had a collector, which knows more."""
    both = [cluster for cluster, levels in kafka.items() if {*LOOKING} <= levels]
    if not both:
        return rows
    return rows.where(~(F.col("cluster_id").isin(*both) & F.col("ext").getItem(OBSERVER).isNotNull()))


def _until(rows: DataFrame, until_us: int | None) -> DataFrame:
    # Filtered by the writer's clock, as files are selected, not by the controller's: so the result does not depend on
    # how events are spread over files. The limit is so far after the question's end that no event beyond it affects an
    # answer, and a fast clock's events from before the end are still within it
    # (`jobs.hours.TRANSITIONS_AFTER_US`); a clock that is further off puts its events into files that are not read.
    return rows if until_us is None else rows.where(F.col(_BOUNDING) < until_us)


def needed(start_us: int | None, end_us: int | None, *, samples: bool) -> Callable[[str, str], bool]:
    """Whether files of a dataset and hour are needed for a window."""
    last = "~" if end_us is None else layout.hour_folder(layout.hour_of(end_us - 1))
    first = {TRANSITIONS: "", SAMPLES: ""}
    if start_us is not None:
        first[TRANSITIONS] = layout.hour_folder(layout.hour_of(start_us) - TRANSITIONS_BEFORE_H)
        first[SAMPLES] = layout.hour_folder(layout.hour_of(start_us - SAMPLES_BEFORE_US))

    def is_needed(dataset: str, hour_path: str) -> bool:
        return (samples or dataset != SAMPLES) and first[dataset] <= hour_path <= last

    return is_needed


def read_rows(spark: SparkSession, files: Sequence[ExportedFile], *, whole: bool = False) -> DataFrame:
    """The rows of files of both formats, with all columns of the schema and no others.

    A row that cannot belong to its file ends the query that meets it, with a message that names the file; an incomplete
    last line of a file of JSON lines is skipped (`inspection.is_cut`).

    Args:
        whole: whether the reader of the rows uses all their columns, and filters them by `_BOUNDING` alone.
    """
    of_cluster: dict[str, list[ExportedFile]] = defaultdict(list)
    for file in files:
        of_cluster[file.cluster_id].append(file)
    frames = [frame for cluster, own in of_cluster.items() for frame in _read_cluster(spark, cluster, own, whole)]
    if not frames:
        return _no_rows(spark)
    return reduce(DataFrame.unionByName, frames)


def _no_rows(spark: SparkSession) -> DataFrame:
    """An empty table with all columns of the schema.

    It avoids `createDataFrame`, whose rows come from this process: that would start a Python worker to send none.
    """
    return spark.range(0).select(*(F.lit(None).cast(column.kind.value).alias(column.name) for column in COLUMNS))


def span_of_rows(spark: SparkSession, files: Sequence[ExportedFile]) -> tuple[int, int] | None:
    """The span from the first event of files to after the last one, us, from their rows; None if there is no event.

    Raises:
        DamagedFile: a file is not whole.
    """
    inspect(files)
    fitted = session_for(spark, sum(file.size_bytes for file in files))
    at = F.col("ts_wall_us")
    (reported,) = read_rows(fitted, files).agg(F.min(at).alias("first"), F.max(at).alias("last")).collect()
    return None if reported["first"] is None else (reported["first"], reported["last"] + 1)


def _read_cluster(spark: SparkSession, cluster: str, files: Sequence[ExportedFile], whole: bool) -> Iterator[DataFrame]:
    """The rows of one cluster's files, by format, so that the cluster of every row is compared with one string."""
    parquet: list[str] = []
    lines: list[str] = []
    cut: list[ExportedFile] = []
    for file in files:
        if file.path.endswith(layout.PARQUET):
            parquet.append(literal(file.uri))
        elif is_cut(file):
            cut.append(file)
        else:
            lines.append(literal(file.uri))
    if parquet:
        yield _believed(spark.read.schema(spark_ddl()).parquet(*parquet), cluster, F.lit(False), whole)
    if lines:
        yield _believed(_json(spark, lines), cluster, F.col(_CORRUPT).isNotNull(), whole)
    if cut:
        tails = [bytearray(tail) for tail in map(cut_line, cut)]
        rows = _json(spark, [literal(file.uri) for file in cut])
        is_tail = F.col(_CORRUPT).cast("binary").isin(tails)
        yield _believed(rows.where(~F.coalesce(is_tail, F.lit(False))), cluster, F.col(_CORRUPT).isNotNull(), whole)


def _json(spark: SparkSession, uris: list[str]) -> DataFrame:
    schema = f"{spark_ddl()}, {_CORRUPT} STRING"
    return spark.read.schema(schema).option("columnNameOfCorruptRecord", _CORRUPT).json(uris)


def _believed(rows: DataFrame, cluster: str, is_damaged: Column, whole: bool) -> DataFrame:
    """The columns of the schema, with a check that rows are events of the cluster in whose folder they are.

    Every column is checked, not only those that reveal a damaged row: Spark applies a query's filter before this
    projection, and in a damaged row any column may be null, so an unchecked one would drop the row silently.
    If rows are read ``whole``, only a filter by `_BOUNDING` comes first, and one check of each kind replaces those of
    all columns.
    """
    file = F.col("_metadata.file_path")

    def trouble(*said: str | Column) -> Column:
        return F.raise_error(F.concat(*(F.lit(part) if isinstance(part, str) else part for part in said)))

    broken = trouble(
        file, " has a line or row that is not an exported event. Rule: each has all columns that the schema requires. ",
        "Export the file again, or take it away with its manifest; its hour then counts as incomplete",
    )  # fmt: skip
    foreign = trouble(
        file, " has events of cluster ", F.col("cluster_id"), ". Rule: a file lies in the folder of its cluster, ",
        cluster, ". Move it to ROOT/", F.col("cluster_id"), "/v1, or export the clusters into different directories",
    )  # fmt: skip
    own = F.when(F.col("cluster_id") == cluster, F.col("cluster_id")).otherwise(foreign.cast("string"))
    telling = [column.name for column in COLUMNS if column.required] if whole else _TELLING
    is_none = is_damaged | reduce(or_, (F.col(name).isNull() for name in telling))

    def checked(column: ColumnOfSchema) -> Column:
        if whole and column.name not in ("cluster_id", _BOUNDING):
            return F.col(column.name)
        value = own if column.name == "cluster_id" else F.col(column.name)
        is_wrong = is_none | F.col(column.name).isNull() if column.required else is_none
        return F.when(is_wrong, broken.cast(column.kind.value)).otherwise(value).alias(column.name)

    return rows.select(*map(checked, COLUMNS))
