"""Derives the course of a partition's high watermark from looks of its leader, and its advances between them.

A look gives the HW, and how long that is valid (`silver.looks`). An advance of the same leader within that time gives
the moment from which it is higher: that of the last step, for advances that were joined.

Invariant: nothing is known where no look is valid; an advance makes known time finer and never longer.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, functions as F

from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.kept import PLACE, place
from strandline_analytics.silver.tables import Silver

LEADER = (PLACE, "leader_epoch", "node_id", "incarnation")
"""The key of one leader's term, in which the HW never goes back."""


def advances(silver: Silver) -> DataFrame:
    """HW_ADVANCE rows with ``PLACE``, ``first_us`` and ``last_us`` in the controller's time; copies are among them.

    ``clock_err_us`` bounds the error of their clock. They are kept, because several statistics read them, and are
    partitioned by ``PLACE``, like looks: joining both needs no further shuffle. For small input each query reads them,
    which costs less than the job that keeps a table.
    """

    def make() -> DataFrame:
        rows = silver.written_samples("HW_ADVANCE").where("partition IS NOT NULL")
        rows = rows.select("cluster_id", place(), *LEADER[1:], "old_hw", "new_hw", "first_us", "last_us")
        rows = in_controller_time(rows, silver.clocks, "node_id", "last_us", "first_us")
        return rows.drop("cluster_id").repartition(PLACE)

    if silver.reads_few_samples:
        return silver.plan(("advances",), make)
    return silver.keep(("advances",), make, samples=True, in_place=True)


def hw_steps(silver: Silver, places: DataFrame) -> DataFrame:
    """The HW as a step function: ``LEADER``, hw, and [t0, t1), in which it is known to have this value.

    Args:
        places: the partitions needed, each ``PLACE`` once: looks of the others, which may be most, are
        not sorted.
    """
    none = F.lit(None).cast("bigint")
    seen = silver.leaders_looks.select(*LEADER, "hw", F.col("t0").alias("_at"), F.col("t1").alias("_until"))
    moved = advances(silver).select(
        *LEADER, F.col("new_hw").alias("hw"), F.col("last_us").alias("_at"), none.alias("_until")
    )
    # The only shuffle: everything after it is ordered within a partition of a topic.
    both = seen.unionByName(moved).join(F.broadcast(places), PLACE, "left_semi").repartition(PLACE)
    order = Window.partitionBy(*LEADER).orderBy("_at", "hw")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    steps = both.select(
        *LEADER,
        F.max("hw").over(so_far).alias("hw"),
        F.col("_at").alias("t0"),
        F.least(F.lead("_at").over(order), F.last("_until", ignorenulls=True).over(so_far)).alias("t1"),
        F.last("_until", ignorenulls=True).over(so_far).alias("_believed"),
    )
    return steps.where("_believed IS NOT NULL AND t1 > t0").drop("_believed")


def hw_spans(steps: DataFrame) -> DataFrame:
    """`hw_steps` merged if one follows the other: ``LEADER`` and [t0, t1), in which the HW is always known."""
    order = Window.partitionBy(*LEADER).orderBy("t0")
    begins = F.coalesce((F.lag("t1").over(order) < F.col("t0")).cast("int"), F.lit(1))
    runs = steps.withColumn("_run", F.sum(begins).over(order))
    return runs.groupBy(*LEADER, "_run").agg(F.min("t0").alias("t0"), F.max("t1").alias("t1")).drop("_run")


# ---- first_above
# Finds when something was first above an offset: the earliest sight of anything higher, for many offsets at once.


def first_above(
    seen: DataFrame, asked: DataFrame, by: Sequence[str], *, offset: str = "_offset", found: str = "_seen"
) -> DataFrame:
    """Per group of ``by`` and ``offset`` asked about: ``found``, the least ``_at`` of anything above it, or null.

    Args:
        seen: columns ``by``, ``_offset`` and ``_at``.
        asked: columns ``by`` and ``_offset``, each combination once.
        offset: the name of the offset in the result.
        found: the name of the earliest sight in the result.
    """
    rows = seen.unionByName(asked.withColumn("_asks", F.lit(1)), allowMissingColumns=True)
    # Rows before a question in this order are above the offset that it asks about.
    above = Window.partitionBy(*by).orderBy(F.desc("_offset"), F.desc_nulls_last("_asks"))
    above = above.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.select(*by, F.col("_offset").alias(offset), "_asks", F.min("_at").over(above).alias(found))
    return rows.where("_asks = 1").drop("_asks")


# ---- lineages
# Finds the offset below which two leader epochs of a partition hold the same records.
#
# An epoch that starts below an earlier HW, as after an unclean election, begins a new line: records at and above its
# start are gone, and later ones at the same offsets are different records.
#
# Invariant: two epochs in different lines share nothing at or above the lowest start of a line between them.


def lines(silver: Silver, seen: DataFrame) -> DataFrame:
    """Per leader epoch and line of its partition: PLACE, leader_epoch, ``is_own`` (it belongs to this line), ``line``,
    and ``shared``, the offset below which the two hold the same records; null if they do everywhere.

    Args:
        seen: observed HWs: PLACE, leader_epoch and ``_offset``, the HW.
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
