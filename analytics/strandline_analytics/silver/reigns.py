"""Events of several controllers in one time, that of the first: by what they measured of the same nodes' clocks.

A controller measures a node's clock less its own, so where two measured one node, the difference is that of their
clocks. Of several nodes the median counts, because one's own clock may have been set meanwhile.

Invariant: what errors of measurement, or drift between two measurements, may explain is no difference.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, functions as F

from strandline.export.schema import CONTROLLER_NODE_ID

DRIFT_US = 100_000
"""What clocks may drift apart from one measurement to the next, us."""

Ahead = dict[tuple[str, int], int]
"""By cluster and incarnation of a controller: how far its clock is ahead of the first one's, us."""


def clocks_ahead(reported: DataFrame) -> tuple[Ahead, list[str]]:
    """The controllers whose clocks differ from the first one's, and what there is to say of them."""
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
            steps = [_step(before[node].last, after[node].first) for node in before.keys() & after.keys()]
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


def _step(last: Any, first: Any) -> int:
    step = int(last.offset_us - first.offset_us)
    return step if abs(step) > last.err_us + first.err_us + DRIFT_US else 0


def in_one_time(rows: DataFrame, ahead: Ahead) -> DataFrame:
    """Rows as written, with the controllers' times in that of the first one."""
    if not ahead:
        return rows
    shift = F.lit(0)
    for (cluster, incarnation), ahead_us in ahead.items():
        is_its = (F.col("cluster_id") == cluster) & (F.col("incarnation") == incarnation)
        shift = F.when(is_its & (F.col("node_id") == CONTROLLER_NODE_ID), ahead_us).otherwise(shift)
    moved = {name: F.col(name) - shift for name in ("ts_wall_us", "last_heartbeat_us")}
    return rows.withColumns(moved | {"offset_us": F.col("offset_us") + shift})
