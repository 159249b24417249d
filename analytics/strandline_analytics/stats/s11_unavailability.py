"""S11: for how long partitions could not be written with acks=all, and not be read.

Writes: under the minimum, or without a leader. Reads: without a leader. The time from the commit of an election until
the leader took up its epoch is reported beside it: for the control plane it is available, but no leader answers yet.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value, known_pieces


def activations(silver: Silver) -> DataFrame:
    """One row per term with a leader: key, leader_epoch, term_leader, t0 (commit), t1 (EPOCH_START in controller time).

    ``t1`` is null where the start was not seen; ``clock_err_us`` bounds its error.
    """
    return silver.plan(("activations",), lambda: _activations(silver))


def _activations(silver: Silver) -> DataFrame:
    starts = silver.epoch_starts.drop("topic", "start_offset").withColumnRenamed("began_us", "t1")
    led = silver.terms.where("term_leader IS NOT NULL")
    return led.join(starts, [*PARTITION_KEY, "leader_epoch"], "left").withColumnRenamed("term_start", "t0")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Microseconds without writes and without reads, and the activation gaps."""
    pieces = known_pieces(silver, scope)
    no_leader, under = F.col("leader").isNull(), F.col("isr_size") < F.col("min_isr")
    times = pieces.groupBy(*scope.columns).agg(
        F.sum("dur").alias("known_us"),
        F.sum(F.when(no_leader | under, F.col("dur")).otherwise(0)).alias("write_unavailable_us"),
        F.sum(F.when(no_leader, F.col("dur")).otherwise(0)).alias("read_unavailable_us"),
    )
    topics = silver.keys
    # A start after the end of its own term activated nothing: the gap ends with the term.
    gaps = activations(silver).where("t1 IS NOT NULL").withColumn("t1", F.least("t1", "term_end"))
    gaps = gaps.join(topics, list(PARTITION_KEY))
    waited = scope.clip(gaps).groupBy(*scope.columns).agg(F.sum(F.col("t1") - F.col("t0")).alias("activation_gap_us"))
    return times.join(waited, list(scope.columns), "left").na.fill(0, ["activation_gap_us"])


STATISTIC = Statistic(
    id="s11",
    name="unavailability",
    title="Write and read unavailability",
    headline="write_unavailable_us",
    values=(
        Value("write_unavailable_us", "bigint", "us", "under the minimum or leaderless"),
        Value("read_unavailable_us", "bigint", "us", "leaderless"),
        Value("activation_gap_us", "bigint", "us", "commit of an election -> start of its epoch"),
    ),
    compute=compute,
)
