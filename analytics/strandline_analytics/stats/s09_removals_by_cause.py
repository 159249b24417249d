"""S9: which replica was removed from an ISR, by which leader, for what cause.

A leader says "lag"; whether the replica had stopped fetching (lag_stuck) or fetched too slowly (lag_slow) is reported
by its last fetch against replica.lag.time.max.ms as of that moment. A removal shortly after the leader took up its
epoch is marked young: it may say more about the leader than about the replica.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.clocks import Clocks, in_controller_time
from strandline_analytics.silver.membership import removals
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value


def classified_removals(silver: Silver) -> DataFrame:
    """Removals with ``reported_cause`` (lag split in two) and ``is_young``; see `silver.removals` for the rest."""
    return silver.keep(("classified removals",), lambda: _classified(silver))


def _classified(silver: Silver) -> DataFrame:
    rows = _in_controller_time(removals(silver), silver.clocks)
    silent = F.col("t") - F.col("last_fetch_us")
    lag = (
        F.when(F.col("last_fetch_us").isNull() | F.col("lag_time_max_us").isNull(), F.lit("lag_unknown"))
        .when(silent > F.col("lag_time_max_us"), F.lit("lag_stuck"))
        .otherwise(F.lit("lag_slow"))
    )
    cause = F.when(F.col("cause") == "lag", lag).otherwise(F.coalesce("cause", F.lit("unknown")))
    young = (F.col("cause") == "lag") & (F.col("t") - F.col("epoch_start_us") < F.col("lag_time_max_us"))
    return rows.withColumn("reported_cause", cause).withColumn("is_young", F.coalesce(young, F.lit(False)))


def _in_controller_time(rows: DataFrame, measured: Clocks) -> DataFrame:
    """Moments that were reported together are of one reading of the reporter's clock, so one offset belongs to them."""
    return in_controller_time(rows, measured, "leader_node_id", "echoed_us", "last_fetch_us", "last_caught_up_us")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Counts per replica, leader and cause."""
    rows = scope.place(classified_removals(silver)).withColumnRenamed("leader", "leader_id")
    return rows.groupBy(*scope.columns, "replica_id", "leader_id", F.col("reported_cause").alias("removal_cause")).agg(
        F.count("*").alias("removals"), F.count_if("is_young").alias("young_epoch")
    )


STATISTIC = Statistic(
    id="s09",
    name="removals_by_cause",
    title="Removals by cause",
    headline="removals",
    extra=(
        Value("replica_id", "int", "node", "the replica that was removed"),
        Value("leader_id", "int", "node", "who led after the change; null if no leader"),
        Value("removal_cause", "string", "", "lag_stuck, lag_slow, lag_unknown, or the cause the controller declared"),
    ),
    values=(
        Value("removals", "bigint", "replicas", "removals of this replica for this cause"),
        Value("young_epoch", "bigint", "replicas", "of them by a leader younger than replica.lag.time.max.ms"),
    ),
    compute=compute,
    needs_coverage=False,
)
