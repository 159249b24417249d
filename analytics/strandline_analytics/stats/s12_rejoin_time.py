"""S12: how long a replica stayed out of the ISR, and with what it spent the time.

From the commit of the removal to the commit of the return. Phases: down (until its node was unfenced again), catch-up
(until the leader proposed it), admission (until the commit). A stay that the window cuts is censored: it counts in the
sums and not in the percentiles.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.membership import stays_outside
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.ranks import nearest_rank


def stays_with_phases(silver: Silver) -> DataFrame:
    """Stays outside the ISR with ``up_at`` and ``proposed_at``, both within [t0, t1]; null where not seen."""
    stays = stays_outside(silver.control)
    up = silver.of_type("NODE_SESSION").where("phase = 'unfence'")
    up = up.select("cluster_id", F.col("subject_node_id").alias("replica_id"), F.col("ts_wall_us").alias("_up"))
    down = silver.of_type("NODE_SESSION").where("phase = 'fence'")
    down = down.select("cluster_id", F.col("subject_node_id").alias("replica_id"), F.col("ts_wall_us").alias("_down"))
    stay = [*PARTITION_KEY, "replica_id", "topic", "t0", "t1", "ended_by", "seen_leaving"]

    def first_within(moments: DataFrame, at: str, name: str, known: DataFrame, on: list[str]) -> DataFrame:
        inside = F.when((F.col(at) >= F.col("t0")) & (F.col(at) <= F.col("t1")), F.col(at))
        return known.join(moments, on, "left").groupBy(*known.columns).agg(F.min(inside).alias(name))

    rows = stays.select(*stay)
    rows = first_within(up, "_up", "up_at", rows, ["cluster_id", "replica_id"])
    rows = first_within(down, "_down", "down_at", rows, ["cluster_id", "replica_id"])
    # Taken from the ISR by a lag and never fenced: it was up all the time.
    rows = rows.withColumn("up_at", F.when(F.col("down_at").isNull(), F.col("t0")).otherwise(F.col("up_at")))
    asked = silver.of_type("ALTER_PARTITION").where("phase = 'proposed'")
    asked = asked.select(*PARTITION_KEY, "node_id", "ts_wall_us", F.explode("proposed_isr").alias("replica_id"))
    asked = in_controller_time(asked, silver.clock_offsets, "node_id", "ts_wall_us")
    asked = asked.select(*PARTITION_KEY, "replica_id", F.col("ts_wall_us").alias("_asked"))
    return first_within(asked, "_asked", "proposed_at", rows.drop("down_at"), [*PARTITION_KEY, "replica_id"])


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per replica: stays that ended, stays that were cut, their lengths and phases."""
    pieces = scope.clip(stays_with_phases(silver)).withColumn("dur", F.col("t1") - F.col("t0"))
    whole = ~F.col("cut_start") & ~F.col("cut_end") & F.col("seen_leaving") & (F.col("ended_by") == "rejoined")
    rejoined = F.when(whole, F.col("dur"))

    def phase(start: str, end: str) -> Column:
        return F.sum(F.when(whole, F.col(end) - F.col(start)))

    return pieces.groupBy(*scope.columns, "replica_id").agg(
        F.count(rejoined).alias("rejoins"),
        F.count_if(~whole).alias("censored"),
        F.sum("dur").alias("out_us"),
        *nearest_rank(rejoined, {"p50_us": 50, "p95_us": 95}),
        F.max(rejoined).alias("max_us"),
        F.max(F.when(~whole, F.col("dur"))).alias("max_censored_us"),
        phase("t0", "up_at").alias("down_us"),
        phase("up_at", "proposed_at").alias("catch_up_us"),
        phase("proposed_at", "t1").alias("admission_us"),
    )


STATISTIC = Statistic(
    id="s12",
    name="rejoin_time",
    title="Time to rejoin",
    extra=(Value("replica_id", "int", "node", "the replica that was out"),),
    values=(
        Value("rejoins", "bigint", "stays", "stays outside that began and ended in the window, by rejoining"),
        Value("censored", "bigint", "stays", "stays cut by the window, of unknown start, or ended otherwise"),
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
