"""Reduces rows to distinct events: each identity once, and never two contents under one identity.

The identity is (cluster_id, node_id, incarnation, seq); it is unique by construction, because an emitter numbers its
events without gaps. Removing doubles is therefore exact, and not a repair of a bad join.

Invariant: two rows of one identity with different contents are an error of the data, never a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F

from strandline.export.schema import COLUMNS, EVENT_TYPES
from strandline_analytics.silver.kept import is_kept_as_rows, kept, let_go

IDENTITY = ("cluster_id", "node_id", "incarnation", "seq")

FilesWith = Callable[[Mapping[str, Any]], Iterable[str]]
"""Finds the names of the files that hold an event, by the columns of `IDENTITY`."""


class ConflictingEvents(Exception):
    """Two rows with one event id have different contents."""


def distinct_events(rows: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """One row per identity, with ``n_copies`` (the number of its rows) and ``n_stories`` (1, or the data are wrong).

    Most occur once, and a row is wide: identities are counted first, and contents are compared only for those that
    repeat. For small input comparing all rows is cheaper than that count, which would read the files once more.

    Returns:
        The events, and a table that is kept for them until `let_go`: the identities that occur more than once, if any.
    """
    if is_kept_as_rows(rows):
        return _reported_once(rows), None
    doubled = rows.groupBy(*IDENTITY).agg(F.count("*").alias("n_copies")).where("n_copies > 1")
    doubled = kept(doubled)
    # Counted completely, so that Spark knows how few they are and broadcasts them.
    n_doubled = doubled.count()
    if not n_doubled:
        let_go(doubled)
        return once_each(rows), None
    identity = list(IDENTITY)
    single = rows.join(doubled, identity, "left_anti")
    reported = _reported_once(rows.join(doubled.select(*identity), identity, "left_semi"))
    return once_each(single).unionByName(reported), doubled


def once_each(rows: DataFrame) -> DataFrame:
    """Rows that are all distinct events, with the columns of `distinct_events`."""
    one = F.lit(1).cast("bigint")
    return rows.withColumns({"n_copies": one, "n_stories": one})


def not_understood(events: DataFrame) -> dict[str, int]:
    """The number of events of each type that this version does not know."""
    unknown = events.where(~F.col("event_type").isin(*EVENT_TYPES)).groupBy("event_type").count()
    return {row["event_type"]: row["count"] for row in unknown.orderBy("event_type").collect()}


def _story() -> Column:
    """A number that differs if any column differs."""
    # Maps cannot be compared, but their sorted entries can.
    reported = F.struct(
        *(F.sort_array(F.map_entries(c.name)) if "MAP" in c.kind.value else F.col(c.name) for c in COLUMNS)
    )
    return F.xxhash64(reported)


def _reported_once(rows: DataFrame) -> DataFrame:
    return (
        rows.withColumn("_story", _story())
        .groupBy(*IDENTITY)
        .agg(
            F.first(F.struct(*(c.name for c in COLUMNS if c.name not in IDENTITY))).alias("_event"),
            F.count("*").alias("n_copies"),
            F.count_distinct("_story").alias("n_stories"),
        )
        .select(
            *(c.name if c.name in IDENTITY else F.col(f"_event.{c.name}") for c in COLUMNS), "n_copies", "n_stories"
        )
    )


def check_stories(events: DataFrame, files_with: FilesWith = lambda identity: ()) -> None:
    """Refuse data in which an identity has two contents.

    Args:
        events: the result of `distinct_events`.
        files_with: finds the files that hold the event of an identity, for the message.

    Raises:
        ConflictingEvents: it names the first identity of them.
    """
    _refuse(events.where("n_stories > 1"), files_with)


def check_copies(rows: DataFrame, files_with: FilesWith = lambda identity: ()) -> None:
    """Refuse rows as they were written in which an identity has two contents; equal copies are fine.

    Raises:
        ConflictingEvents: it names the first identity of them.
    """
    reported = rows.withColumn("_story", _story()).groupBy(*IDENTITY)
    stories = reported.agg(
        F.min("_story").alias("_least"), F.max("_story").alias("_most"), F.min("event_type").alias("event_type")
    )
    _refuse(stories.where("_least != _most"), files_with)


def _refuse(wrong: DataFrame, files_with: FilesWith) -> None:
    # Not the first that is found: Spark would search one part of the table after the other.
    one = wrong.agg(F.min(F.struct(*IDENTITY, "event_type")).alias("one")).collect()[0].one
    if one is None:
        return
    files = " and ".join(files_with({name: one[name] for name in IDENTITY}))
    raise ConflictingEvents(
        f"event {one.node_id}:{one.incarnation}:{one.seq} of cluster {one.cluster_id} is there with two different "
        f"contents ({one.event_type}){', in ' if files else ''}{files}; an event id names one event. Remove the files "
        "of one of the two exports: most likely two clusters, or two runs of a simulation, were written into one "
        "directory."
    )
