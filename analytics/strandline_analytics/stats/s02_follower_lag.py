"""S2: how far each replica was behind its leader, by what was expected of it.

LEO of the leader - LEO of the replica as the leader knew it: a lower bound of the replica's LEO, so an upper bound of
its lag. Replicas that are down are rows of their own and do not spoil the figures of those that work.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.kept import GROUP
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import WEIGHT, percentiles, sums_by_value, weighted_mean


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Time-weighted figures per replica and expected state; ``known_us`` is the time it was looked at."""
    by = [*GROUP, "replica_id", "expected_state"]
    others = silver.believed_looks.where("NOT is_leader").withColumn("lag", F.col("leader_leo") - F.col("leo"))
    # A new leader does not know where a replica stands until it fetched.
    others = others.where("lag IS NOT NULL")
    pieces = scope.clip(silver.grouped(others, scope)).withColumn("dur", F.col("t1") - F.col("t0"))
    sums = sums_by_value(pieces, by, "lag", "dur")
    figures = sums.groupBy(*by).agg(
        F.sum(WEIGHT).alias("known_us"),
        weighted_mean(F.col("lag"), F.col(WEIGHT)).alias("mean_records"),
        *percentiles("lag", {"p50_records": 50, "p95_records": 95, "p99_records": 99}),
        F.max("lag").alias("max_records"),
    )
    return silver.named(figures, scope)


STATISTIC = Statistic(
    id="s02",
    name="follower_lag_records",
    title="Follower lag per replica",
    headline="max_records",
    extra=(
        Value("replica_id", "int", "node", "the replica"),
        Value("expected_state", "string", "", "member, catching_up, reassigning, down or observer"),
    ),
    values=(
        Value("mean_records", "double", "records", "time-weighted mean of the leader's LEO - the replica's"),
        Value("p50_records", "bigint", "records", "time-weighted median"),
        Value("p95_records", "bigint", "records", "time-weighted 95th percentile"),
        Value("p99_records", "bigint", "records", "time-weighted 99th percentile"),
        Value("max_records", "bigint", "records", "largest value seen"),
    ),
    compute=compute,
    reads_samples=True,
)
