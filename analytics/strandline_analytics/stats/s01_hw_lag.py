"""S1: how many records stood between the high watermark and the end of the leader's log.

h(t) = LEO of the leader - HW, from the leader's own samples, held as `silver.looks` says. Kafka's MaxLag says nothing
here: an in-sync follower has LEO >= HW by definition, so it shows about 0 whatever the backlog.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.kept import GROUP
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import WEIGHT, percentiles, sums_by_value, weighted_mean


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Time-weighted figures of the lag; ``known_us`` is the time covered by looks of leaders."""
    reported = F.col("leader_leo") - F.col("hw")
    columns = {"lag": F.when(reported >= 0, reported), "_is_negative": reported < 0}
    pieces = silver.leaders_pieces(scope).withColumns(columns)
    sums = sums_by_value(pieces, GROUP, "lag", "dur", F.count_if("_is_negative").alias("_negative"))
    figures = sums.groupBy(*GROUP).agg(
        F.sum(WEIGHT).alias("known_us"),
        weighted_mean(F.col("lag"), F.col(WEIGHT)).alias("mean_records"),
        *percentiles("lag", {"p50_records": 50, "p95_records": 95, "p99_records": 99}),
        F.max("lag").alias("max_records"),
        F.sum("_negative").alias("n_negative"),
    )
    return silver.named(figures, scope)


STATISTIC = Statistic(
    id="s01",
    name="hw_lag_records",
    title="HW lag, records",
    headline="mean_records",
    values=(
        Value("mean_records", "double", "records", "time-weighted mean of LEO - HW of the leader"),
        Value("p50_records", "bigint", "records", "time-weighted median"),
        Value("p95_records", "bigint", "records", "time-weighted 95th percentile"),
        Value("p99_records", "bigint", "records", "time-weighted 99th percentile"),
        Value("max_records", "bigint", "records", "largest value seen"),
        Value("n_negative", "bigint", "samples", "samples with HW above LEO, an error; in no figure", counts=True),
    ),
    compute=compute,
    reads_samples=True,
)
