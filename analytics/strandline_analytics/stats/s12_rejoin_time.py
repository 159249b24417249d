"""S12: how long a replica stayed out of the ISR, and with what it spent the time.

From the commit of the removal to the commit of the return. Phases: down (until its node was unfenced for the last
time), catch-up (until the leader proposed it: that it had caught up is what makes a leader propose), admission (until
the commit). A stay that the window cuts is censored: it counts in the
sums and not in the percentiles.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.membership import stays_outside
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import nearest_rank


def stays_with_phases(silver: Silver) -> DataFrame:
    """Stays outside the ISR with ``up_at`` and ``proposed_at``, both within [t0, t1]; null where not seen.

    A node that went down more than once was up from the last time on that it was unfenced.
    """
    stay = [*PARTITION_KEY, "replica_id", "topic", "t0", "t1", "ended_by", "seen_leaving"]
    rows = stays_outside(silver.control).select(*stay)
    rows = _with_sessions(rows, silver)
    asked = silver.of_type("ALTER_PARTITION").where("phase = 'proposed'")
    asked = asked.select(*PARTITION_KEY, "node_id", "ts_wall_us", F.explode("proposed_isr").alias("replica_id"))
    asked = in_controller_time(asked, silver.clocks, "node_id", "ts_wall_us")
    asked = asked.select(*PARTITION_KEY, "replica_id", F.col("ts_wall_us").alias("_asked"))
    fits = (F.col("_asked") >= F.col("up_at")) & (F.col("_asked") <= F.col("t1"))
    pairs = rows.join(asked, [*PARTITION_KEY, "replica_id"], "left")
    return pairs.groupBy(*rows.columns).agg(F.min(F.when(fits, F.col("_asked"))).alias("proposed_at"))


def _with_sessions(stays: DataFrame, silver: Silver) -> DataFrame:
    """Add ``up_at``: when the node took part again; ``t0`` if it did all the time, null if never."""
    reported = silver.of_type("NODE_SESSION").where("phase IN ('fence', 'unfence')")
    reported = reported.select(
        "cluster_id",
        F.col("subject_node_id").alias("replica_id"),
        F.col("phase").alias("_phase"),
        F.struct("ts_wall_us", "incarnation", "seq").alias("_order"),
    )
    at, phase = F.col("_order.ts_wall_us"), F.col("_phase")
    until_end = F.when(at <= F.col("t1"), F.col("_order"))
    rows = stays.join(reported, ["cluster_id", "replica_id"], "left").groupBy(*stays.columns)
    # Who is fenced leaves the ISR in the same decision, so the fence may stand before the stay as well as in it.
    last = rows.agg(F.max(until_end).alias("_last"), F.max_by(phase, until_end).alias("_now"))
    up_at = (
        F.when(F.col("_last").isNull(), F.col("t0"))
        .when(F.col("_now") == "unfence", F.greatest(F.col("_last.ts_wall_us"), F.col("t0")))
        .otherwise(F.lit(None).cast("bigint"))
    )
    return last.withColumn("up_at", up_at).select(*stays.columns, "up_at")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per replica: stays that ended, stays that were cut, their lengths and phases."""
    pieces = scope.clip(stays_with_phases(silver)).withColumn("dur", F.col("t1") - F.col("t0"))
    # A return at the end of the window is out of it, as every transition there.
    ended = ~F.col("cut_end") & (F.col("t1") < F.col("window_end"))
    whole = ~F.col("cut_start") & F.col("seen_leaving") & ended & F.col("ended_by").eqNullSafe("rejoined")
    reassigned = ended & F.col("ended_by").eqNullSafe("reassigned")
    rejoined = F.when(whole, F.col("dur"))
    censored = ~whole & ~reassigned

    def phase(start: str, end: str) -> Column:
        return F.sum(F.when(whole, F.col(end) - F.col(start)))

    return pieces.groupBy(*scope.columns, "replica_id").agg(
        F.count(rejoined).alias("rejoins"),
        F.count_if(reassigned).alias("reassigned"),
        F.count_if(censored).alias("censored"),
        F.sum("dur").alias("out_us"),
        *nearest_rank(rejoined, {"p50_us": 50, "p95_us": 95}),
        F.max(rejoined).alias("max_us"),
        F.max(F.when(censored, F.col("dur"))).alias("max_censored_us"),
        phase("t0", "up_at").alias("down_us"),
        phase("up_at", "proposed_at").alias("catch_up_us"),
        phase("proposed_at", "t1").alias("admission_us"),
    )


STATISTIC = Statistic(
    id="s12",
    name="rejoin_time",
    title="Time to rejoin",
    headline="out_us",
    extra=(Value("replica_id", "int", "node", "the replica that was out"),),
    values=(
        Value("rejoins", "bigint", "stays", "stays outside that began and ended in the window, by rejoining"),
        Value("reassigned", "bigint", "stays", "stays that ended because the partition was placed elsewhere"),
        Value("censored", "bigint", "stays", "stays cut by the window or of unknown start or end"),
        Value("out_us", "bigint", "us", "time outside, censored stays included"),
        Value("p50_us", "bigint", "us", "median of the time to rejoin, nearest rank"),
        Value("p95_us", "bigint", "us", "95th percentile, nearest rank"),
        Value("max_us", "bigint", "us", "longest time to rejoin"),
        Value("max_censored_us", "bigint", "us", "longest censored stay: it lasted at least so long"),
        Value("down_us", "bigint", "us", "of the rejoins: until the node was unfenced"),
        Value("catch_up_us", "bigint", "us", "of the rejoins: until the leader proposed the replica; two clocks"),
        Value("admission_us", "bigint", "us", "of the rejoins: from the proposal to the commit; two clocks"),
    ),
    compute=compute,
    needs_coverage=False,
)
