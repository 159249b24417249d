"""S5: how many records were acknowledged to a client, but not committed.

A = max(0, acked offset - HW). With acks=all the protocol makes it 0; what is left is data written with acks=1, the only
exposure of records that were acknowledged.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.kept import GROUP
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import WEIGHT, percentiles, sums_by_value, weighted_mean


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Time-weighted figures of A, and for how long it was above 0."""
    pieces = silver.leaders_pieces(scope).where("acked_offset IS NOT NULL")
    pieces = pieces.withColumn("at_risk", F.greatest(F.lit(0), F.col("acked_offset") - F.col("hw")))
    sums = sums_by_value(pieces, GROUP, "at_risk", "dur")
    figures = sums.groupBy(*GROUP).agg(
        F.sum(WEIGHT).alias("known_us"),
        weighted_mean(F.col("at_risk"), F.col(WEIGHT)).alias("mean_records"),
        *percentiles("at_risk", {"p50_records": 50, "p95_records": 95, "p99_records": 99}),
        F.max("at_risk").alias("max_records"),
        F.sum(F.when(F.col("at_risk") > 0, F.col(WEIGHT)).otherwise(0)).alias("at_risk_us"),
    )
    return silver.named(figures, scope)


STATISTIC = Statistic(
    id="s05",
    name="acked_uncommitted",
    title="Acknowledged but not committed",
    headline="max_records",
    values=(
        Value("mean_records", "double", "records", "time-weighted mean of acked offset - HW, at least 0"),
        Value("p50_records", "bigint", "records", "time-weighted median"),
        Value("p95_records", "bigint", "records", "time-weighted 95th percentile"),
        Value("p99_records", "bigint", "records", "time-weighted 99th percentile"),
        Value("max_records", "bigint", "records", "largest value seen"),
        Value("at_risk_us", "bigint", "us", "for how long it was above 0"),
    ),
    compute=compute,
    reads_samples=True,
)
