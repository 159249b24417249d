"""What a percentile of plain durations is: nearest rank, the value at position ceil(p * n) in order.

Exact and one of the values; null where there is none. Groups are small: events, not samples.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F


def nearest_rank(value: Column, percents: Mapping[str, int]) -> list[Column]:
    """Aggregates of ``value`` (nulls count nothing) under the names of ``percents``, whole percents by name."""
    ordered = F.sort_array(F.collect_list(value))
    n = F.count(value)

    def at(percent: int) -> Column:
        position = ((n * percent + 99 - (n * percent + 99) % 100) / 100).cast("int")
        return F.when(n > 0, F.element_at(ordered, F.greatest(position, F.lit(1))))

    return [at(percent).alias(name) for name, percent in percents.items()]
