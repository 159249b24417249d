"""S3: for how long the oldest record above the high watermark had been waiting.

T(t) = t - append time of the record at offset HW while LEO > HW, else 0: inside an interval it rises with slope 1, so
its integral is exact, (e1 + e0) / 2 times the length. An idle partition has 0, not an undefined value. Where the append
time is missing, the first look at a LEO above this HW is used instead, be it at this HW or at a lower one: the record
was there by then, so it is at most one interval too late; and it is counted.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.kept import GROUP, PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value

_SERIES = (PLACE, "leader_epoch", "incarnation")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Mean and maximum of T; the mean is exact in integers up to the last division."""
    waits = F.col("leader_leo") > F.col("hw")
    estimated = F.coalesce(waits & F.col("hw_next_append_us").isNull(), F.lit(False))
    own = _with_first_seen(silver.leaders_looks.withColumn("_estimated", estimated))
    own = own.withColumn("_since", F.when(waits, F.coalesce("hw_next_append_us", "_seen")))
    pieces = scope.clip(silver.grouped(own, scope)).withColumn("dur", F.col("t1") - F.col("t0"))
    doubled = (F.col("t0") + F.col("t1") - 2 * F.col("_since")).cast("decimal(38,0)") * F.col("dur")
    figures = pieces.groupBy(*GROUP).agg(
        F.sum("dur").alias("known_us"),
        (F.coalesce(F.sum(doubled), F.lit(0)).cast("double") / (2 * F.sum("dur"))).alias("mean_us"),
        F.coalesce(F.max(F.col("t1") - F.col("_since")), F.lit(0)).alias("max_us"),
        F.sum(F.when(waits, F.col("dur")).otherwise(0)).alias("waiting_us"),
        F.sum(F.when(F.col("_estimated"), F.col("dur")).otherwise(0)).alias("estimated_us"),
        F.count_if(F.col("t0") < F.col("_since")).alias("n_negative"),
    )
    return silver.named(figures, scope)


def _with_first_seen(own: DataFrame) -> DataFrame:
    """Looks with ``_seen``; of those that an append time is missing of: when the series first showed a LEO above their
    HW.

    A look that is ``_estimated`` is there twice meanwhile: as a LEO that was seen, and as a question about its HW. So
    rows stay where they lie, by ``PLACE``, and nothing is joined: that would shuffle and sort all looks.
    """
    seen = F.struct(F.col("leader_leo").alias("offset"), F.col("t0").alias("at"), F.lit(False).alias("asks"))
    asked = F.struct(F.col("hw").alias("offset"), F.lit(None).cast("bigint").alias("at"), F.lit(True).alias("asks"))
    rows = own.withColumn("_row", F.explode(F.when(F.col("_estimated"), F.array(seen, asked)).otherwise(F.array(seen))))
    # Rows before a question in this order are above the offset that it asks about.
    above = Window.partitionBy(*_SERIES).orderBy(F.desc("_row.offset"), F.desc("_row.asks"))
    above = above.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return rows.withColumn("_seen", F.min("_row.at").over(above)).where("_row.asks OR NOT _estimated")


STATISTIC = Statistic(
    id="s03",
    name="hw_lag_time",
    title="HW lag, time",
    headline="max_us",
    values=(
        Value("mean_us", "double", "us", "time-weighted mean age of the oldest uncommitted record, 0 if none"),
        Value("max_us", "bigint", "us", "largest age, the left limit at the end of an interval"),
        Value("waiting_us", "bigint", "us", "for how long something was uncommitted"),
        Value("estimated_us", "bigint", "us", "part of it for which the append time was estimated"),
        Value("n_negative", "bigint", "samples", "append times after the look"),
    ),
    compute=compute,
    reads_samples=True,
)
