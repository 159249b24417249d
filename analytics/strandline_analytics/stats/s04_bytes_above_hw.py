"""S4: how many bytes stood above the high watermark, and for how long: the exposure, in byte-seconds.

Byte counters begin again with each epoch, so they are only ever subtracted within one look.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.kept import GROUP
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import exact_integral


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Mean, maximum and integral of the bytes between HW and LEO of the leader."""
    pieces = silver.leaders_pieces(scope).withColumn("above", F.col("leo_bytes") - F.col("hw_bytes"))
    pieces = pieces.where("above IS NOT NULL")
    exposure = exact_integral(F.col("above"), F.col("dur")).cast("double")
    figures = pieces.groupBy(*GROUP).agg(
        F.sum("dur").alias("known_us"),
        (exposure / F.sum("dur")).alias("mean_bytes"),
        F.max("above").alias("max_bytes"),
        (exposure / 1_000_000).alias("byte_seconds"),
    )
    return silver.named(figures, scope)


STATISTIC = Statistic(
    id="s04",
    name="bytes_above_hw",
    title="Bytes above the HW",
    headline="max_bytes",
    values=(
        Value("mean_bytes", "double", "bytes", "time-weighted mean"),
        Value("max_bytes", "bigint", "bytes", "largest value seen"),
        Value("byte_seconds", "double", "byte s", "the integral over time"),
    ),
    compute=compute,
    reads_samples=True,
)
