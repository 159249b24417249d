"""S13: how long it took to notice that a replica had fallen behind.

Commit of the removal - last caught-up time of the replica. The expiry check runs twice per replica.lag.time.max.ms T,
so 1 to 1.5 T and the latency of the proposal are expected; less than T is the controller's doing (a dead node) or
a bug.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import nearest_rank
from strandline_analytics.stats.s09_removals_by_cause import classified_removals


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Delays per initiator; negative ones stay and are counted."""
    rows = scope.place(classified_removals(silver))
    rows = rows.withColumn("delay", F.col("t") - F.col("last_caught_up_us"))
    limit = F.col("lag_time_max_us")
    return rows.groupBy(*scope.columns, F.coalesce("initiator", F.lit("unknown")).alias("removed_by")).agg(
        F.count("*").alias("removals"),
        F.count_if(F.col("delay").isNull()).alias("unknown"),
        F.min("delay").alias("min_us"),
        *nearest_rank(F.col("delay"), {"p50_us": 50, "p95_us": 95}),
        F.max("delay").alias("max_us"),
        F.count_if(F.col("delay") < limit).alias("below_limit"),
        F.count_if(F.col("delay") > limit * 3 / 2).alias("above_expected"),
        F.count_if(F.col("delay") < 0).alias("n_negative"),
        F.max("clock_err_us").alias("clock_err_us"),
    )


STATISTIC = Statistic(
    id="s13",
    name="detection_delay",
    title="Shrink detection delay",
    headline="max_us",
    extra=(Value("removed_by", "string", "", "leader or controller: who started the change"),),
    values=(
        Value("removals", "bigint", "replicas", "removals"),
        Value("unknown", "bigint", "replicas", "of them without a last caught-up time"),
        Value("min_us", "bigint", "us", "shortest delay"),
        Value("p50_us", "bigint", "us", "median, nearest rank"),
        Value("p95_us", "bigint", "us", "95th percentile, nearest rank"),
        Value("max_us", "bigint", "us", "longest delay"),
        Value("below_limit", "bigint", "replicas", "delays below replica.lag.time.max.ms"),
        Value("above_expected", "bigint", "replicas", "delays above one and a half times it"),
        Value("n_negative", "bigint", "replicas", "delays below 0"),
        Value("clock_err_us", "bigint", "us", "largest error of the clocks' offsets"),
    ),
    compute=compute,
    needs_coverage=False,
)
