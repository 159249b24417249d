"""Which leader epochs of a partition hold the same records below which offset.

An epoch that starts below a HW that was seen before it, as an unclean election leaves it, begins a new line: what stood
at and above its start is gone, and what is there later are other records.

Invariant: of two epochs in different lines nothing is shared at or above the lowest start of a line between them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, functions as F

from strandline_analytics.silver.kept import PLACE, place
from strandline_analytics.silver.tables import Silver


def lines(silver: Silver, seen: DataFrame) -> DataFrame:
    """Per leader epoch and line of its partition: PLACE, leader_epoch, ``is_own`` (it is of this line), ``line``, and
    ``shared``, the offset below which the two hold the same records; null: everywhere.

    Args:
        seen: sights of HWs: PLACE, leader_epoch and ``_offset``, the HW.
    """
    epoch = [PLACE, "leader_epoch"]
    highest = seen.groupBy(*epoch).agg(F.max("_offset").alias("_highest"))
    starts = silver.epoch_starts.select(place(), "leader_epoch", "start_offset")
    rows = highest.join(F.broadcast(starts), epoch, "left")
    in_order = Window.partitionBy(PLACE).orderBy("leader_epoch")
    before = F.max("_highest").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    rows = rows.withColumn("_begins", F.coalesce(F.col("start_offset") < before, F.lit(False)))
    rows = rows.withColumn("_own", F.sum(F.col("_begins").cast("int")).over(in_order))
    # One element for each line but the first, in order.
    begun = F.sort_array(
        F.collect_list(F.when(F.col("_begins"), F.struct("_own", "start_offset"))).over(Window.partitionBy(PLACE))
    )
    rows = rows.withColumn("_begun", begun).withColumn("line", F.explode(F.sequence(F.lit(0), F.size("_begun"))))
    return rows.select(*epoch, "line", (F.col("_own") == F.col("line")).alias("is_own"), _shared().alias("shared"))


def _shared() -> Column:
    between = F.slice("_begun", F.least("_own", "line") + 1, F.abs(F.col("_own") - F.col("line")))
    return F.array_min(F.transform(between, lambda begun: begun["start_offset"]))
