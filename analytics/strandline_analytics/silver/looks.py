"""Decides for how long a leader's look at its replicas is believed.

A sample at t holds to the earliest of: the next one of the same leader epoch and incarnation, three times the silence
that it declared, and the end of the leader's term (`state-events` 2.6). Beyond that the state is unknown: nothing is
interpolated and nothing carried forward without limit.

All of it is told in the controller's time, like the terms: a leader whose clock is fast would lose its last looks
otherwise, which are those that a cut is measured by.

Invariant: a sample at or after the end of its term is a zombie's. It is counted and never used.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.places import PLACE, place

HOLD_INTERVALS = 3
"""How many times its declared interval a sample is believed."""

_LOOKED_AT = (
    "leader_epoch", "incarnation", "replica_id", "leo", "durable_leo", "leader_leo", "hw", "acked_offset", "leo_bytes",
    "hw_bytes", "hw_next_append_us", "in_isr", "in_maximal_isr", "expected_state", "sample_id",
)  # fmt: skip


def looks(samples: DataFrame, terms: DataFrame, offsets: DataFrame) -> DataFrame:
    """REPLICA_SAMPLE rows as intervals [t0, t1), one per replica and look, zombies among them with ``is_zombie``.

    ``PLACE`` numbers the partition (`silver.places`).
    ``t`` of a row is corrected along its emitter's sequence. ``is_leader`` marks the row of the leader itself, which
    stands for the look as a whole. ``is_double`` marks a further copy of an event; only the last is used. A look from
    before the commit of its own epoch, told by a clock that nobody measured, counts from that commit on.

    Args:
        offsets: what the emitters' clocks are corrected by (`clocks.clock_offsets`).
    """
    series = Window.partitionBy(PLACE, "replica_id", "leader_epoch", "node_id", "incarnation").orderBy("seq")
    so_far = series.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = samples.where("event_type = 'REPLICA_SAMPLE'").select(
        "cluster_id", place(), "node_id", "seq", "ts_wall_us", "interval_ms", *_LOOKED_AT
    )
    rows = rows.withColumn("_told", F.col("ts_wall_us"))
    rows = in_controller_time(rows, offsets, "node_id", "ts_wall_us", "hw_next_append_us")
    rows = rows.drop("cluster_id", "clock_err_us")
    # The one shuffle: whatever is grouped or ordered within a partition of a topic finds its rows together.
    rows = rows.repartition(PLACE).select(
        "*",
        F.coalesce(F.lead("seq").over(series) == F.col("seq"), F.lit(False)).alias("is_double"),
        F.max("ts_wall_us").over(so_far).alias("_at"),
        F.max("_told").over(so_far).alias("_newest"),
        F.min("ts_wall_us").over(series.rowsBetween(1, 1)).alias("_next"),
    )
    spans = terms.select(place(), "leader_epoch", "term_start", "term_end")
    rows = rows.join(F.broadcast(spans), [PLACE, "leader_epoch"], "left")
    silence = F.col("_at") + F.col("interval_ms") * (HOLD_INTERVALS * 1_000)
    # Of nulls, least takes no notice: the last look holds until it is silence, or until the term is over.
    following = F.when(F.col("_next").isNotNull(), F.greatest("_next", "_at"))
    until = F.least(following, silence, F.col("term_end"))
    return (
        rows.withColumn("t1", until)
        .withColumn("t0", F.greatest("_at", "term_start"))
        .withColumn("is_zombie", F.coalesce(F.col("_at") >= F.col("term_end"), F.lit(False)))
        .withColumn("is_leader", F.col("replica_id") == F.col("node_id"))
        # A correction that became smaller is no clock that was set back.
        .withColumn("went_back", F.col("_told") < F.col("_newest"))
        .drop("_next", "seq", "term_start", "ts_wall_us", "interval_ms", "_at", "_told", "_newest")
    )
