"""Where a consumer group stands in a partition, beside the high watermark, as step functions over time.

A GROUP_OFFSETS row comes at most once a second per group and partition while offsets are committed, and once a minute
for each that has an offset. What it says is believed until the next one, and at most three minutes, as a look is
believed for three times the silence that it declared. What a deposed coordinator says after the next one, which has a
higher epoch, reported the same key is left out; rows of a version without the epoch stand by their time alone.

Invariant: a lag is known only where both the committed offset and the HW are; neither is carried on beyond that.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.high_watermarks import hw_steps
from strandline_analytics.silver.places import PLACE, place
from strandline_analytics.silver.tables import Silver

BELIEVED_US = 180_000_000
"""For how long a row is believed: three times the minute in which every group's offset is reported once."""

_PLACE_OF_GROUP = (PLACE, "group_id")


def commits(silver: Silver) -> DataFrame:
    """GROUP_OFFSETS rows, each event once, of the partition ``PLACE``; ``t`` is in the controller's time."""

    def make() -> DataFrame:
        own = Window.partitionBy(*_PLACE_OF_GROUP, "node_id", "incarnation").orderBy("seq")
        so_far = own.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        rows = silver.written_samples("GROUP_OFFSETS").where("partition IS NOT NULL")
        rows = rows.select(
            "cluster_id", place(), "node_id", "incarnation", "seq", "ts_wall_us", "group_id", "committed", "n_commits",
            "n_error", "coordinator_epoch",
        )  # fmt: skip
        rows = in_controller_time(rows, silver.clocks, "node_id", "ts_wall_us").repartition(PLACE)
        is_copy = F.coalesce(F.lead("seq").over(own) == F.col("seq"), F.lit(False))
        rows = rows.withColumns({"t": F.max("ts_wall_us").over(so_far), "_is_copy": is_copy})
        return rows.where("NOT _is_copy").drop("cluster_id", "ts_wall_us", "clock_err_us", "_is_copy")

    return silver.keep(("commits",), make, samples=True)


def group_lags(silver: Silver) -> DataFrame:
    """PLACE, group_id, [t0, t1), hw and committed: the times in which both are known."""
    return silver.keep(("group lags",), lambda: _group_lags(silver), samples=True)


def _group_lags(silver: Silver) -> DataFrame:
    held = _held(silver)
    groups = held.select(*_PLACE_OF_GROUP).distinct()
    stands = hw_steps(silver, groups.select(PLACE).distinct()).join(F.broadcast(groups), PLACE)
    none = F.lit(None).cast("struct<value: bigint, until: bigint>")
    both = stands.select(*_PLACE_OF_GROUP, "t0", _until_t1("hw").alias("_hw"), none.alias("_committed")).unionByName(
        held.select(*_PLACE_OF_GROUP, "t0", none.alias("_hw"), _until_t1("committed").alias("_committed"))
    )
    order = Window.partitionBy(*_PLACE_OF_GROUP).orderBy("t0")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = both.repartition(PLACE).select(
        *_PLACE_OF_GROUP,
        "t0",
        F.lead("t0").over(order).alias("_next"),
        F.last("_hw", ignorenulls=True).over(so_far).alias("_hw"),
        F.last("_committed", ignorenulls=True).over(so_far).alias("_committed"),
    )
    # What nothing is committed for is a state too; it only has no lag.
    rows = rows.where("_hw IS NOT NULL AND _committed.value IS NOT NULL")
    rows = rows.withColumn("t1", F.least("_next", "_hw.until", "_committed.until")).where("t1 > t0")
    return rows.select(
        *_PLACE_OF_GROUP, "t0", "t1", F.col("_hw.value").alias("hw"), F.col("_committed.value").alias("committed")
    )


def _held(silver: Silver) -> DataFrame:
    """What is committed, as intervals [t0, t1)."""
    epoch = F.col("coordinator_epoch")
    order = Window.partitionBy(*_PLACE_OF_GROUP).orderBy("t", epoch.asc_nulls_first(), "node_id", "incarnation", "seq")
    newest = F.max(epoch).over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    rows = commits(silver).withColumn("_newest", newest).where(epoch.isNull() | (epoch == F.col("_newest")))
    until = F.least(F.lead("t").over(order), F.col("t") + BELIEVED_US)
    rows = rows.select(*_PLACE_OF_GROUP, F.col("t").alias("t0"), until.alias("t1"), "committed")
    return rows.where("t1 > t0")


def _until_t1(value: str) -> Column:
    return F.struct(F.col(value).alias("value"), F.col("t1").alias("until"))
