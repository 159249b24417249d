"""Corrects the times of emitters' clocks, so that times of two clocks can be compared.

The controller measures the clocks of nodes on heartbeats: CLOCK_SAMPLE has offset_us, node's clock - controller's, and
err_us, at most half of the round trip. A node's time minus the offset is the controller's time, within +- err_us.

Invariant: a difference of two clocks is never clamped; a negative one is flagged where it is used.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql import Column, DataFrame, Window, functions as F

from strandline.export.schema import CONTROLLER_NODE_ID
from strandline_analytics.scope import FOREVER_US, PARTITION_KEY

_SLOT_US = 30_000_000
"""The length of the slots into which times are sorted before they are compared with intervals: about one per slot."""

_BELIEVED_US = 7 * 24 * 3_600_000_000
"""The longest validity of a measurement, us: a clock that began in 1970 and was then set leaves decades of nothing."""


def clock_offsets(transitions: DataFrame) -> DataFrame:
    """Per node: intervals [c0, c1) of its own clock with ``offset_us`` and ``err_us``; the first has no beginning.

    They are adjacent even if the clock was set back: of two measurements at the same own time the later one counts. A
    measurement that is followed by another is valid for `_BELIEVED_US` at most.
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
    """The intervals of `clock_offsets` in the form that `in_controller_time` looks up, planned once for all uses.

    - ``ends``: one row per node: its first and its last interval, which have no beginning and no end.
    - ``between``: the other intervals, once in each slot of time that they touch.
    """

    ends: DataFrame
    between: DataFrame


def clocks(offsets: DataFrame) -> Clocks:
    """The corrections for columns of nodes' clocks.

    Args:
        offsets: the result of `clock_offsets`.
    """
    return Clocks(F.broadcast(_ends(offsets)), F.broadcast(_between(offsets)))


def in_controller_time(rows: DataFrame, measured: Clocks, node: str, *times: str) -> DataFrame:
    """Convert columns of a node's clock to controller time, and add ``clock_err_us`` (null if nothing was measured).

    Both joins are by equality and with few rows, so that millions of samples can be corrected: before the first and
    after the last measurement of a node by that measurement, in between by slots of time.

    Args:
        node: the column with the node whose clock gave the times.
        times: columns of roughly the same moment: all get the offset at the first of them that is not null.
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
    """One row per leader epoch that a leader began: key, topic, leader_epoch, starter, start_offset, began_us.

    ``began_us`` is the moment in the controller's time; ``clock_err_us`` bounds its error.
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


# ---- reigns
# Converts events of several controllers to the time of the first, by their measurements of the same nodes' clocks.
#
# A controller measures a node's clock minus its own, so if two measured the same node, the difference is that of their
# clocks. Of several nodes the median counts, because a node's clock may have been set meanwhile.
#
# Invariant: a deviation that measurement errors, or drift between two measurements, may explain is not a difference.


DRIFT_US = 100_000
"""The drift that two clocks may have between one measurement and the next, us."""

Ahead = dict[tuple[str, int], int]
"""The lead of a controller's clock over the first one's, us, by cluster and incarnation."""


def clocks_ahead(reported: DataFrame) -> tuple[Ahead, list[str]]:
    """The controllers whose clocks differ from the first one's, and remarks on them."""
    measured = F.struct("offset_us", "err_us")
    rows = reported.where(f"event_type = 'CLOCK_SAMPLE' AND node_id = {CONTROLLER_NODE_ID}")
    rows = rows.groupBy("cluster_id", "incarnation", "subject_node_id").agg(
        F.min_by(measured, "ts_wall_us").alias("first"), F.max_by(measured, "ts_wall_us").alias("last")
    )
    reigns: dict[str, dict[int, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows.collect():
        reigns[row.cluster_id][row.incarnation][row.subject_node_id] = row
    ahead: Ahead = {}
    said = []
    for cluster, of_controllers in sorted(reigns.items()):
        total = 0
        for one, other in pairwise(sorted(of_controllers)):
            before, after = of_controllers[one], of_controllers[other]
            steps = [_difference(before[node].last, after[node].first) for node in before.keys() & after.keys()]
            if steps:
                total += sorted(steps, key=abs)[(len(steps) - 1) // 2]
            else:
                said.append(f"the clocks of controllers {one} and {other} were never compared: no node's was by both")
            if total:
                ahead[cluster, other] = total
                side = "ahead of" if total > 0 else "behind"
                amount = f"{abs(total) / 1e6:,.3f} s {side} the first one's"
                said.append(f"the clock of controller {other} is {amount}, and its times are corrected by that")
    return ahead, said


def _difference(last: Any, first: Any) -> int:
    step = int(last.offset_us - first.offset_us)
    return step if abs(step) > last.err_us + first.err_us + DRIFT_US else 0


def in_one_time(rows: DataFrame, ahead: Ahead) -> DataFrame:
    """Rows as written, with the controllers' times converted to that of the first one."""
    if not ahead:
        return rows
    shift = F.lit(0)
    for (cluster, incarnation), ahead_us in ahead.items():
        is_its = (F.col("cluster_id") == cluster) & (F.col("incarnation") == incarnation)
        shift = F.when(is_its & (F.col("node_id") == CONTROLLER_NODE_ID), ahead_us).otherwise(shift)
    moved = {name: F.col(name) - shift for name in ("ts_wall_us", "last_heartbeat_us")}
    return rows.withColumns(moved | {"offset_us": F.col("offset_us") + shift})
