"""Determines how long a leader's look at its replicas, a sample of their state, is valid.

A sample at t holds to the earliest of: the next one of the same leader epoch and incarnation, three times its declared
interval, and the end of the leader's term (STATISTICS.md#conventions). If the change that ended the term was lost, the
first sign of a later leader ends it: its EPOCH_START, or its first look. Beyond that the state is unknown: nothing is
interpolated and nothing carried forward without limit.

All times are the controller's, like those of the terms: otherwise a leader with a fast clock would lose its last looks,
which are those that a truncation is measured by.

Invariant: a sample at or after the end of its term is a zombie's. It is counted and never used.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.silver.clocks import Clocks, in_controller_time
from strandline_analytics.silver.kept import PLACE, place

HOLD_INTERVALS = 3
"""The validity of a sample, in multiples of its declared interval."""

_LOOKED_AT = (
    "leader_epoch", "incarnation", "replica_id", "leo", "durable_leo", "leader_leo", "hw", "acked_offset", "leo_bytes",
    "hw_bytes", "hw_next_append_us", "in_isr", "in_maximal_isr", "expected_state", "sample_id",
)  # fmt: skip

_REIGN = (PLACE, "leader_epoch", "node_id", "incarnation")
"""A leader: one life of one process in one epoch."""


def looks(
    samples: DataFrame, terms: DataFrame, starts: DataFrame, measured: Clocks, observed: Collection[str] = ()
) -> DataFrame:
    """REPLICA_SAMPLE rows as intervals [t0, t1), one per replica and look, zombies among them with ``is_zombie``.

    ``PLACE`` numbers the partition (`silver.places`).
    ``t`` of a row is corrected along its emitter's sequence. ``is_leader`` marks the row of the leader itself, which
    represents the whole look. ``is_double`` marks a further copy of an event; only the last is used. A look from
    before the commit of its own epoch, reported by an unmeasured clock, counts from that commit on. ``next_start`` is
    the start offset of the next epoch that began.

    Args:
        starts: when leaders took up their epochs (`clocks.epoch_starts`).
        measured: the corrections of the emitters' clocks.
        observed: clusters whose leaders are observed by another system, which has a clock of its own.
    """
    series = Window.partitionBy(PLACE, "replica_id", "leader_epoch", "node_id", "incarnation").orderBy("seq")
    so_far = series.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = samples.where("event_type = 'REPLICA_SAMPLE'").select(
        "cluster_id", place(), "node_id", "seq", "ts_wall_us", "interval_ms", *_LOOKED_AT
    )
    rows = rows.withColumn("_reported", F.col("ts_wall_us"))
    clock = "node_id"
    if observed:
        clock = "_clock"
        rows = rows.withColumn(clock, F.when(~F.col("cluster_id").isin(*observed), F.col("node_id")))
    rows = in_controller_time(rows, measured, clock, "ts_wall_us", "hw_next_append_us")
    rows = rows.drop("cluster_id", "clock_err_us", "_clock")
    spans = _spans(terms, starts)
    reigns = _reigns(rows, spans)
    # The only shuffle: later grouping or ordering within a partition of a topic finds its rows together.
    rows = rows.repartition(PLACE).select(
        "*",
        F.coalesce(F.lead("seq").over(series) == F.col("seq"), F.lit(False)).alias("is_double"),
        F.max("ts_wall_us").over(so_far).alias("_at"),
        F.max("_reported").over(so_far).alias("_newest"),
        F.min("ts_wall_us").over(series.rowsBetween(1, 1)).alias("_next"),
    )
    rows = rows.join(F.broadcast(spans), [PLACE, "leader_epoch"], "left").join(F.broadcast(reigns), [*_REIGN], "left")
    silence = F.col("_at") + F.col("interval_ms") * (HOLD_INTERVALS * 1_000)
    # `least` ignores nulls: the last look holds until its validity or the term ends.
    following = F.when(F.col("_next").isNotNull(), F.greatest("_next", "_at"))
    over = F.least("term_end", "_succeeded")
    return (
        rows.withColumn("t1", F.least(following, silence, over))
        .withColumn("t0", F.greatest("_at", "_began"))
        .withColumn("is_zombie", F.coalesce(F.col("_at") >= over, F.lit(False)))
        .withColumn("is_leader", F.col("replica_id") == F.col("node_id"))
        # A smaller correction does not mean that the clock was set back.
        .withColumn("went_back", F.col("_reported") < F.col("_newest"))
        .drop("_next", "seq", "_began", "_succeeded", "ts_wall_us", "interval_ms", "_at", "_reported", "_newest")
    )


def _spans(terms: DataFrame, starts: DataFrame) -> DataFrame:
    """Per leader epoch: ``term_end``, and ``_began``, its commit, or its EPOCH_START if the commit was not reported.

    ``_started`` is the EPOCH_START, which ends lower epochs; null if it was not seen. ``next_start`` is the start
    offset of the next epoch that began.
    """
    taken_up = starts.select(place(), "leader_epoch", F.col("began_us").alias("_taken_up"), "start_offset")
    reported = terms.select(place(), "leader_epoch", "term_start", "term_end", "is_start_reported")
    both = reported.join(taken_up, [PLACE, "leader_epoch"], "full")
    began = F.when(F.col("is_start_reported"), F.col("term_start")).otherwise(F.least("term_start", "_taken_up"))
    started = F.when(F.col("_taken_up").isNotNull(), F.greatest(F.col("_taken_up"), began))
    later = Window.partitionBy(PLACE).orderBy("leader_epoch").rowsBetween(1, Window.unboundedFollowing)
    next_start = F.first("start_offset", ignorenulls=True).over(later)
    return both.select(
        PLACE, "leader_epoch", "term_end", began.alias("_began"), started.alias("_started"),
        next_start.alias("next_start"),
    )  # fmt: skip


def _reigns(rows: DataFrame, spans: DataFrame) -> DataFrame:
    """Per leader with looks: ``_succeeded``, the first sign of a later one, null if there is none.

    Later means a higher epoch; within one epoch, which should have only one leader, a later first look.
    """
    first = rows.groupBy(*_REIGN).agg(F.min("ts_wall_us").alias("_first"))
    first = first.join(F.broadcast(spans), [PLACE, "leader_epoch"], "left")
    looked = first.select(*_REIGN, F.greatest("_first", "_began").alias("_sign"), F.lit(0).alias("_is_start"))
    none = F.lit(None).cast("bigint")
    started = spans.where("_started IS NOT NULL").select(
        PLACE, "leader_epoch", none.cast("int").alias("node_id"), none.alias("incarnation"),
        F.col("_started").alias("_sign"), F.lit(1).alias("_is_start"),
    )  # fmt: skip
    # The start of an epoch comes last within it in this order, because it ends lower epochs but not its own.
    downward = Window.partitionBy(PLACE).orderBy(
        F.desc("leader_epoch"), "_is_start", *(F.desc(name) for name in ("_sign", "incarnation", "node_id"))
    )
    above = downward.rowsBetween(Window.unboundedPreceding, -1)
    signs = looked.unionByName(started).withColumn("_succeeded", F.min("_sign").over(above))
    return signs.where("_is_start = 0").select(*_REIGN, "_succeeded")
