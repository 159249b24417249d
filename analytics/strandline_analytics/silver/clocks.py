"""Decides what an emitter's clock must be corrected by, where times of two clocks meet (class X, `state-events` 2.6).

The controller measures the clocks of nodes on heartbeats: CLOCK_SAMPLE has offset_us, node's clock - controller's, and
err_us, at most half of the round trip. A node's time minus the offset is the controller's time, within +- err_us.

Invariant: a difference of two clocks is never clamped; a negative one is flagged where it is used.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from strandline_analytics.scope import FOREVER_US


def clock_offsets(transitions: DataFrame) -> DataFrame:
    """Per node: intervals [c0, c1) of its own clock with ``offset_us`` and ``err_us``; the first has no beginning."""
    rows = transitions.where("event_type = 'CLOCK_SAMPLE'").select(
        "cluster_id", F.col("subject_node_id").alias("clock_node_id"), "ts_wall_us", "offset_us", "err_us"
    )
    order = Window.partitionBy("cluster_id", "clock_node_id").orderBy("ts_wall_us")
    by_own_clock = F.col("ts_wall_us") + F.col("offset_us")
    return (
        rows.withColumn("c0", F.when(F.row_number().over(order) == 1, F.lit(-FOREVER_US)).otherwise(by_own_clock))
        .withColumn("c1", F.coalesce(F.lead(by_own_clock).over(order), F.lit(FOREVER_US)))
        .drop("ts_wall_us")
    )


def in_controller_time(rows: DataFrame, offsets: DataFrame, node: str, *times: str) -> DataFrame:
    """Turn columns of a node's clock into controller time, and add ``clock_err_us`` (null where nothing was measured).

    Args:
        rows: few: transitions, not samples.
        node: the column that names the node whose clock told the times.
    """
    clock = offsets.withColumnRenamed("cluster_id", "_cluster")
    asked = F.col(times[0])
    matches = (
        (F.col("cluster_id") == F.col("_cluster"))
        & (F.col(node) == F.col("clock_node_id"))
        & (asked >= F.col("c0"))
        & (asked < F.col("c1"))
    )
    joined = rows.join(F.broadcast(clock), matches, "left")
    shift = F.coalesce("offset_us", F.lit(0))
    corrected = joined.withColumns({time: F.col(time) - shift for time in times})
    return corrected.withColumnRenamed("err_us", "clock_err_us").drop(
        "_cluster", "clock_node_id", "c0", "c1", "offset_us"
    )
