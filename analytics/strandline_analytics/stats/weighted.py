"""Decides what a time-weighted percentile is: the smallest value v with sum of durations(value <= v) >= p * the whole.

Nearest rank on exact integers (`state-events` 2.6), so that two engines agree to the last microsecond. Spark's
``percentile(col, p, frequency)`` interpolates and ``percentile_approx`` estimates: neither is this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from strandline_analytics.silver.places import PLACE, with_place


def exact_integral(value: Column, weight: Column) -> Column:
    """The sum of value times weight, without rounding; a day of a large cluster does not fit into 64 bits."""
    return F.sum(value.cast("decimal(19,0)") * weight.cast("decimal(19,0)"))


def weighted_mean(value: Column, weight: Column) -> Column:
    """The mean of ``value`` over the weight of the rows that have one; null where none has."""
    whole = F.sum(F.when(value.isNotNull(), weight))
    return exact_integral(value, weight).cast("double") / whole


def weighted_percentiles(
    rows: DataFrame, by: Sequence[str], value: str, weight: str, percents: Mapping[str, int]
) -> DataFrame:
    """Per group of ``by``: the percentiles of ``value`` weighted by ``weight``, under the names of ``percents``.

    Args:
        rows: with integer columns ``value`` and ``weight``; rows where either is null or 0 weight count nothing.
        percents: result column -> whole percent, for instance ``{"p95": 95}``.
    """
    held = rows.where(F.col(value).isNotNull() & (F.col(weight) > 0))
    sums = held.groupBy(*by, value).agg(F.sum(weight).alias("_weight"))
    group = Window.partitionBy(PLACE, *by)
    sums = with_place(sums, by).withColumn("_so_far", F.sum("_weight").over(group.orderBy(value)))
    sums = sums.withColumn("_whole", F.sum("_weight").over(group))
    picks = [
        F.min(F.when(F.col("_so_far") * 100 >= F.col("_whole") * percent, F.col(value))).alias(name)
        for name, percent in percents.items()
    ]
    return sums.groupBy(*by).agg(*picks)
