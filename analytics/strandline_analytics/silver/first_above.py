"""When something was first above an offset: the earliest sight of anything higher, for many offsets at once."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def first_above(seen: DataFrame, asked: DataFrame, by: Sequence[str]) -> DataFrame:
    """Per group of ``by`` and offset asked about: ``_seen``, the least ``_at`` of what is above; null if nothing is.

    Args:
        seen: columns ``by``, ``_offset`` and ``_at``.
        asked: columns ``by`` and ``_offset``, each combination once.
    """
    none = F.lit(None).cast(seen.schema["_at"].dataType)
    found = seen.select(*by, "_offset", "_at", F.lit(0).alias("_asks"))
    asks = asked.select(*by, "_offset", none.alias("_at"), F.lit(1).alias("_asks"))
    # What stands before a question in this order is above the offset that it asks about.
    above = Window.partitionBy(*by).orderBy(F.desc("_offset"), F.desc("_asks"))
    above = above.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = found.unionByName(asks).withColumn("_seen", F.min("_at").over(above)).where("_asks = 1")
    return rows.select(*by, "_offset", "_seen")
