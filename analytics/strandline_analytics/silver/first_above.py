"""When something was first above an offset: the earliest sight of anything higher, for many offsets at once."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def first_above(
    seen: DataFrame, asked: DataFrame, by: Sequence[str], *, offset: str = "_offset", found: str = "_seen"
) -> DataFrame:
    """Per group of ``by`` and ``offset`` asked about: ``found``, the least ``_at`` of what is above; null: nothing is.

    Args:
        seen: columns ``by``, ``_offset`` and ``_at``.
        asked: columns ``by`` and ``_offset``, each combination once.
        offset: what the result calls the offset.
        found: what the result calls the earliest sight.
    """
    rows = seen.unionByName(asked.withColumn("_asks", F.lit(1)), allowMissingColumns=True)
    # Rows before a question in this order are above the offset that it asks about.
    above = Window.partitionBy(*by).orderBy(F.desc("_offset"), F.desc_nulls_last("_asks"))
    above = above.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.select(*by, F.col("_offset").alias(offset), "_asks", F.min("_at").over(above).alias(found))
    return rows.where("_asks = 1").drop("_asks")
