"""Decides which rows are events: each identity once, and never two stories under one identity.

The identity is (cluster_id, node_id, incarnation, seq); it is unique by construction, for an emitter numbers its events
without gaps (`state-events` 2.2). Removing doubles is therefore exact, and not a repair of a bad join.

Invariant: two rows of one identity with different contents are an error of the data, never a choice.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.export.schema import COLUMNS
from strandline_analytics.silver.kept import kept, let_go

IDENTITY = ("cluster_id", "node_id", "incarnation", "seq")


class ConflictingEvents(Exception):
    """Two rows say different things under one event id."""


def distinct_events(rows: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """One row per identity, with ``n_copies`` (how often it was there) and ``n_stories`` (1, or the data is wrong).

    Most are there once, and a row is wide: identities are counted first, at once, and stories told of the others only.

    Returns:
        The events, and what is kept for them until `let_go`: the identities that are there more than once, if any are.
    """
    doubled = rows.groupBy(*IDENTITY).agg(F.count("*").alias("n_copies")).where("n_copies > 1")
    doubled = kept(doubled)
    # Counted whole, so that Spark knows how few they are and sends them to where the rows are.
    n_doubled = doubled.count()
    if not n_doubled:
        let_go(doubled)
        return once_each(rows), None
    identity = list(IDENTITY)
    single = rows.join(doubled, identity, "left_anti")
    told = _told_once(rows.join(doubled.select(*identity), identity, "left_semi"))
    return once_each(single).unionByName(told), doubled


def once_each(rows: DataFrame) -> DataFrame:
    """Rows of which each is an event of its own, with the columns of `distinct_events`."""
    one = F.lit(1).cast("bigint")
    return rows.withColumns({"n_copies": one, "n_stories": one})


def _told_once(rows: DataFrame) -> DataFrame:
    # Maps cannot be compared; as sorted entries they can.
    told = F.struct(*(F.sort_array(F.map_entries(c.name)) if "MAP" in c.kind.value else F.col(c.name) for c in COLUMNS))
    return (
        rows.withColumn("_story", F.xxhash64(told))
        .groupBy(*IDENTITY)
        .agg(
            F.first(F.struct(*(c.name for c in COLUMNS if c.name not in IDENTITY))).alias("_event"),
            F.count("*").alias("n_copies"),
            F.count_distinct("_story").alias("n_stories"),
        )
        .select(*IDENTITY, "_event.*", "n_copies", "n_stories")
    )


def check_stories(events: DataFrame) -> None:
    """Refuse data in which an identity tells two stories.

    Raises:
        ConflictingEvents: it names the first identity of them.
    """
    # Not the first that is found: Spark would look for it in one part of the table after the other.
    one = F.min(F.struct(*IDENTITY, "event_type")).alias("one")
    wrong = events.where("n_stories > 1").agg(one).collect()[0].one
    if wrong is not None:
        raise ConflictingEvents(
            f"event {wrong.node_id}:{wrong.incarnation}:{wrong.seq} of cluster {wrong.cluster_id} is there with two "
            f"different contents ({wrong.event_type}); an event id names one event. Remove the files of one of the two "
            "exports: most likely two clusters, or two runs of a simulation, were written into one directory."
        )
