"""What coordinators reported of groups and members, in order; and as step functions who had which partition.

A group's events stand in the order of coordinator epochs, which are the leader epochs of the coordinator's partition,
and within one in that of its leader's numbers. What a coordinator reported at or after the end of its term is a
zombie's: left out, as a leader's looks are. Once an hour a coordinator says again what everything is (``is_repeated``):
that is a state from then on, and no change.

Invariant: nothing is known of a group before its first event that was read, nor beyond the last word of the controller
about the partition of its coordinator.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline.export.schema import REPEATED
from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.kept import PLACE, place
from strandline_analytics.silver.tables import Silver

GROUP_KEY = (*PARTITION_KEY, "group_id")
"""A group, at the partition of its coordinator."""

ORDER = ("leader_epoch", "incarnation", "seq")
"""How the events of a group are ordered."""

_REPORTED = (
    "event_type", "old_state", "new_state", "group_epoch", "n_members", "member_id", "phase", "assigned", "is_repeated",
)  # fmt: skip


def group_events(silver: Silver) -> DataFrame:
    """GROUP_CHANGE and MEMBER_CHANGE rows, in the controller's time ``t``, which does not go back along the order."""
    return silver.plan(("group events",), lambda: _group_events(silver))


def _group_events(silver: Silver) -> DataFrame:
    rows = silver.of_type("GROUP_CHANGE", "MEMBER_CHANGE").where("partition IS NOT NULL")
    rows = rows.withColumn("is_repeated", F.col("cause").eqNullSafe(REPEATED))
    rows = rows.select(*GROUP_KEY, "node_id", *ORDER, "ts_wall_us", *_REPORTED)
    rows = in_controller_time(rows, silver.clocks, "node_id", "ts_wall_us").drop("clock_err_us")
    ends = silver.terms.select(*PARTITION_KEY, "leader_epoch", "term_end")
    rows = rows.join(F.broadcast(ends), [*PARTITION_KEY, "leader_epoch"], "left")
    rows = rows.where("term_end IS NULL OR ts_wall_us < term_end")
    so_far = Window.partitionBy(*GROUP_KEY).orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return rows.withColumn("t", F.max("ts_wall_us").over(so_far)).drop("ts_wall_us", "term_end")


def heard_until(silver: Silver) -> DataFrame:
    """Per partition of the control plane, with its ``topic``: ``heard_us``, up to when anything is known of it."""
    return silver.control.groupBy(*PARTITION_KEY, "topic").agg(F.max("t1").alias("heard_us"))


def living(silver: Silver) -> DataFrame:
    """The times [t0, t1) in which a group was known to have members: cluster_id, group_id."""
    changes = group_events(silver).where("event_type = 'GROUP_CHANGE'")
    return _held(silver, changes, ()).where("n_members > 0").select("cluster_id", "group_id", "t0", "t1")


def owned(silver: Silver) -> DataFrame:
    """Which member had which partition: the ``PLACE`` that is consumed, cluster_id, group_id, member_id, [t0, t1).

    A partition that a member is to give up is not among those that are assigned to it.
    """

    def make() -> DataFrame:
        changes = group_events(silver).where("event_type = 'MEMBER_CHANGE'")
        rows = _held(silver, changes, ("member_id",)).withColumn("_named", F.explode("assigned"))
        topic_id, partition = F.substring_index("_named", ":", 1), F.substring_index("_named", ":", -1).cast("int")
        rows = rows.select(
            "cluster_id", "group_id", "member_id", "t0", "t1", topic_id.alias("topic_id"), partition.alias("partition")
        )
        rows = rows.select(place(), "cluster_id", "group_id", "member_id", "t0", "t1")
        return joined(rows, (PLACE, "cluster_id", "group_id", "member_id"))

    return silver.plan(("owned",), make)


def joined(intervals: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Intervals [t0, t1) of each ``by`` as few as there can be: those that touch or overlap are one."""
    order = Window.partitionBy(*by).orderBy("t0", "t1")
    reached = F.max("t1").over(order.rowsBetween(Window.unboundedPreceding, -1))
    rows = intervals.withColumn("_apart", F.coalesce((F.col("t0") > reached).cast("int"), F.lit(1)))
    rows = rows.withColumn("_run", F.sum("_apart").over(order))
    return rows.groupBy(*by, "_run").agg(F.min("t0").alias("t0"), F.max("t1").alias("t1")).drop("_run")


def _held(silver: Silver, changes: DataFrame, of: tuple[str, ...]) -> DataFrame:
    """Changes as intervals [t0, t1): each holds to the next one of the same group, and of the same ``of``."""
    order = Window.partitionBy(*GROUP_KEY, *of).orderBy(*ORDER)
    rows = changes.join(F.broadcast(heard_until(silver)), list(PARTITION_KEY), "left")
    until = F.coalesce(F.lead("t").over(order), F.col("heard_us"))
    return rows.withColumns({"t0": F.col("t"), "t1": until}).where("t1 > t0")
