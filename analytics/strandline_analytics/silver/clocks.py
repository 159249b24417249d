"""What an emitter's clock must be corrected by, where times of two clocks meet.

The controller measures the clocks of nodes on heartbeats: CLOCK_SAMPLE has offset_us, node's clock - controller's, and
err_us, at most half of the round trip. A node's time minus the offset is the controller's time, within +- err_us.

Invariant: a difference of two clocks is never clamped; a negative one is flagged where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, functions as F

from strandline_analytics.scope import FOREVER_US, PARTITION_KEY

_SLOT_US = 30_000_000
"""How finely the times of a day are sorted before they are compared with intervals: about one interval to a slot."""

_BELIEVED_US = 7 * 24 * 3_600_000_000
"""A clock that began in 1970 and was set leaves an interval of decades, of which nothing is known."""


def clock_offsets(transitions: DataFrame) -> DataFrame:
    """Per node: intervals [c0, c1) of its own clock with ``offset_us`` and ``err_us``; the first has no beginning.

    They lie side by side even where the clock was set back: of two measurements at one own time the later counts. A
    measurement that another follows is believed for `_BELIEVED_US` at most.
    """
    rows = transitions.where("event_type = 'CLOCK_SAMPLE'").select(
        "cluster_id", F.col("subject_node_id").alias("clock_node_id"), "ts_wall_us", "offset_us", "err_us"
    )
    rows = rows.withColumn("_own", F.col("ts_wall_us") + F.col("offset_us"))
    order = Window.partitionBy("cluster_id", "clock_node_id").orderBy("_own", "ts_wall_us")
    following = F.lead("_own").over(order)
    return (
        rows.withColumn("c0", F.when(F.row_number().over(order) == 1, F.lit(-FOREVER_US)).otherwise(F.col("_own")))
        .withColumn("c1", F.coalesce(F.least(following, F.col("_own") + _BELIEVED_US), F.lit(FOREVER_US)))
        .drop("ts_wall_us", "_own")
    )


@dataclass(frozen=True, slots=True)
class Clocks:
    """The intervals of `clock_offsets` as `in_controller_time` looks them up, planned once for all that is corrected.

    - ``ends``: one row per node: its first and its last interval, which have no beginning and no end.
    - ``between``: the other intervals, once in each slot of time that they touch.
    """

    ends: DataFrame
    between: DataFrame


def clocks(offsets: DataFrame) -> Clocks:
    """What columns of a node's clock are corrected by.

    Args:
        offsets: as `clock_offsets` gives them.
    """
    return Clocks(F.broadcast(_ends(offsets)), F.broadcast(_between(offsets)))


def in_controller_time(rows: DataFrame, measured: Clocks, node: str, *times: str) -> DataFrame:
    """Turn columns of a node's clock into controller time, and add ``clock_err_us`` (null where nothing was measured).

    Both joins are by equality and with few rows, so that millions of samples can be corrected: before the first and
    behind the last measurement of a node by what was measured there, in between by slots of time.

    Args:
        node: the column that names the node whose clock gave the times.
        times: all of one moment, more or less: what is corrected is the offset at the first of them that is not null.
    """
    asked = F.coalesce(*times)
    kept = rows.columns
    rows = rows.withColumns(
        {"_asked": asked, "_slot": _slot(asked), "_cluster": F.col("cluster_id"), "_node": F.col(node)}
    )
    joined = rows.join(measured.ends, ["_cluster", "_node"], "left")
    inside = (F.col("_asked") >= F.col("c0")) & (F.col("_asked") < F.col("c1"))
    same = (F.col("_cluster") == F.col("_of")) & (F.col("_node") == F.col("_by")) & (F.col("_slot") == F.col("_in"))
    joined = joined.join(measured.between, same & inside, "left")
    clock = (
        F.when(F.col("_asked") < F.col("_first_end"), F.col("_first"))
        .when(F.col("_asked") >= F.col("_last_start"), F.col("_last"))
        .otherwise(F.col("_middle"))
    )
    shift = F.coalesce(clock.getField("offset_us"), F.lit(0))
    return joined.select(
        *((F.col(name) - shift).alias(name) if name in times else name for name in kept),
        clock.getField("err_us").alias("clock_err_us"),
    )


def epoch_starts(reported: DataFrame, measured: Clocks) -> DataFrame:
    """One row per leader epoch that was taken up: key, topic, leader_epoch, starter, start_offset, began_us.

    ``began_us`` is when, in the controller's time; ``clock_err_us`` bounds its error.
    """
    starts = reported.groupBy(*PARTITION_KEY, "leader_epoch").agg(
        F.min("topic").alias("topic"),
        F.min_by("node_id", "ts_wall_us").alias("starter"),
        F.min("start_offset").alias("start_offset"),
        F.min("ts_wall_us").alias("began_us"),
    )
    return in_controller_time(starts, measured, "starter", "began_us")


def _slot(at: Column) -> Column:
    return F.floor(at / _SLOT_US)


def _ends(offsets: DataFrame) -> DataFrame:
    measured = F.struct("offset_us", "err_us")
    nodes = offsets.groupBy(F.col("cluster_id").alias("_cluster"), F.col("clock_node_id").alias("_node"))
    return nodes.agg(
        F.min("c1").alias("_first_end"),
        F.min_by(measured, "c0").alias("_first"),
        F.max("c0").alias("_last_start"),
        F.max_by(measured, "c0").alias("_last"),
    )


def _between(offsets: DataFrame) -> DataFrame:
    bounded = offsets.where((F.col("c0") > -FOREVER_US) & (F.col("c1") < FOREVER_US) & (F.col("c1") > F.col("c0")))
    return bounded.select(
        F.col("cluster_id").alias("_of"),
        F.col("clock_node_id").alias("_by"),
        F.explode(F.sequence(_slot(F.col("c0")), _slot(F.col("c1") - 1))).alias("_in"),
        "c0",
        "c1",
        F.struct("offset_us", "err_us").alias("_middle"),
    )
