"""S21: how many records a consumer group had still to read.

lag(t) = HW of the leader - offset that the group committed, both as step functions (`silver.groups`). Where the
committed offset is above all that the leader had reported, the HW was there too and its report was joined or lost: how
far behind the group was is not known; the time is counted and enters no figure.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.groups import group_lags
from strandline_analytics.silver.kept import GROUP
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import WEIGHT, percentiles, sums_by_value, weighted_mean


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Time-weighted figures per consumer group; ``known_us`` is the time in which both offsets are known."""
    by = [*GROUP, "group_id"]
    reported = F.col("hw") - F.col("committed")
    pieces = scope.clip(silver.grouped(group_lags(silver), scope))
    pieces = pieces.withColumns({"dur": F.col("t1") - F.col("t0"), "lag": F.when(reported >= 0, reported)})
    sums = sums_by_value(pieces, by, "lag", "dur")

    def spent(where: str) -> Column:
        return F.coalesce(F.sum(F.when(F.expr(where), F.col(WEIGHT))), F.lit(0))

    figures = sums.groupBy(*by).agg(
        F.sum(WEIGHT).alias("known_us"),
        weighted_mean(F.col("lag"), F.col(WEIGHT)).alias("mean_records"),
        *percentiles("lag", {"p50_records": 50, "p95_records": 95, "p99_records": 99}),
        F.max("lag").alias("max_records"),
        spent("lag > 0").alias("behind_us"),
        spent("lag IS NULL").alias("ahead_us"),
    )
    return silver.named(figures, scope)


STATISTIC = Statistic(
    id="s21",
    name="group_lag_records",
    title="Group lag, records",
    headline="max_records",
    extra=(Value("group_id", "string", "", "the consumer group; null: none committed"),),
    values=(
        Value("mean_records", "double", "records", "time-weighted mean of HW - committed offset"),
        Value("p50_records", "bigint", "records", "time-weighted median"),
        Value("p95_records", "bigint", "records", "time-weighted 95th percentile"),
        Value("p99_records", "bigint", "records", "time-weighted 99th percentile"),
        Value("max_records", "bigint", "records", "largest value seen"),
        Value("behind_us", "bigint", "us", "for how long it was above 0"),
        Value("ahead_us", "bigint", "us", "for how long the committed offset was above all reported HWs"),
    ),
    compute=compute,
    reads_samples=True,
    of_groups=True,
)
