"""Percentiles: of durations by rank, of values by the time that they held.

What a time-weighted figure is: a mean, or the least v with sum of durations(value <= v) >= p * the whole.

Nearest rank on exact integers (STATISTICS.md#conventions), so that two engines agree to the last microsecond. Spark's
``percentile(col, p, frequency)`` interpolates and ``percentile_approx`` estimates: neither is this.

Rows are added up by value first, once; all figures of a group are computed from these sums, which are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window, functions as F

# ---- ranks
# What a percentile of plain durations is: nearest rank, the value at position ceil(p * n) in order.
#
# Exact and one of the values; null where there is none. Groups are small: events, not samples.


def nearest_rank(value: Column, percents: Mapping[str, int]) -> list[Column]:
    """Aggregates of ``value`` (nulls count nothing) under the names of ``percents``, whole percents by name."""
    ordered = F.sort_array(F.collect_list(value))
    n = F.count(value)

    def at(percent: int) -> Column:
        position = ((n * percent + 99 - (n * percent + 99) % 100) / 100).cast("int")
        return F.when(n > 0, F.element_at(ordered, F.greatest(position, F.lit(1))))

    return [at(percent).alias(name) for name, percent in percents.items()]


WEIGHT = "_weight"
_SO_FAR, _WHOLE = "_so_far", "_whole"


def exact_integral(value: Column, weight: Column) -> Column:
    """The sum of value times weight, without rounding; a day of a large cluster does not fit into 64 bits."""
    return F.sum(value.cast("decimal(19,0)") * weight.cast("decimal(19,0)"))


def weighted_mean(value: Column, weight: Column) -> Column:
    """The mean of ``value`` over the weight of the rows that have one; null where none has."""
    whole = F.sum(F.when(value.isNotNull(), weight))
    return exact_integral(value, weight).cast("double") / whole


def sums_by_value(rows: DataFrame, by: Sequence[str], value: str, weight: str, *more: Column) -> DataFrame:
    """Per group of ``by`` and value: ``WEIGHT``, the sum of the weights; of no value as well, in no percentile or mean.

    Args:
        rows: with integer columns ``value`` and ``weight``; rows of no weight count nothing.
        more: further aggregates of the rows.
    """
    sums = rows.where(F.col(weight) > 0).groupBy(*by, value).agg(F.sum(weight).alias(WEIGHT), *more)
    group = Window.partitionBy(*by)
    valued = F.when(F.col(value).isNotNull(), F.col(WEIGHT))
    return sums.withColumns({_SO_FAR: F.sum(valued).over(group.orderBy(value)), _WHOLE: F.sum(valued).over(group)})


def percentiles(value: str, percents: Mapping[str, int]) -> list[Column]:
    """Aggregates of `sums_by_value` under the names of ``percents``, for instance ``{"p95": 95}``, whole percents."""
    return [
        F.min(F.when(F.col(_SO_FAR) * 100 >= F.col(_WHOLE) * percent, F.col(value))).alias(name)
        for name, percent in percents.items()
    ]
