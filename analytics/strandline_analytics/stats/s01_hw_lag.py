"""S1: how many records stood between the high watermark and the end of the leader's log.

h(t) = LEO of the leader - HW, from the leader's own samples, held as `silver.looks` says. Kafka's MaxLag says nothing
here: an in-sync follower has LEO >= HW by definition, so it shows about 0 whatever the backlog (`state-events` 1).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.weighted import weighted_mean, weighted_percentiles


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Time-weighted figures of the lag; ``known_us`` is the time covered by looks of leaders."""
    own = silver.believed_looks.where("is_leader").withColumn("lag", F.col("leader_leo") - F.col("hw"))
    pieces = scope.clip(own).withColumn("dur", F.col("t1") - F.col("t0"))
    sound = F.col("lag") >= 0
    figures = pieces.groupBy(*scope.columns).agg(
        F.sum("dur").alias("known_us"),
        weighted_mean(F.when(sound, F.col("lag")), F.col("dur")).alias("mean_records"),
        F.max(F.when(sound, F.col("lag"))).alias("max_records"),
        F.count_if(~sound).alias("n_negative"),
    )
    percentiles = weighted_percentiles(
        pieces.where(sound), scope.columns, "lag", "dur", {"p50_records": 50, "p95_records": 95, "p99_records": 99}
    )
    return figures.join(percentiles, list(scope.columns), "left")


STATISTIC = Statistic(
    id="s01",
    name="hw_lag_records",
    title="HW lag, records",
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
