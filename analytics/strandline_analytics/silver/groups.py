"""Computes the position of a consumer group in a partition and the high watermark, as step functions over time.

A GROUP_OFFSETS row comes at most once a second per group and partition while offsets are committed, and once a minute
for each that has an offset. It is valid until the next one, and at most three minutes, as a look is valid for three
times its declared interval. Rows of a deposed coordinator are left out once the next one, which has a higher epoch, has
reported the same key; rows of a version without the epoch are ordered by time alone.

A committed offset is joined with the HW once for each report of it, and once more for each period in which the HW is
known without a gap: the cost is the sum of both, however many groups read a partition. Only S21, which weighs every
value of a lag, follows each step of the HW for each group.

Invariant: a lag is known only while both the committed offset and the HW are; neither is carried on beyond that.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline.export.schema import REPEATED
from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.high_watermarks import LEADER, first_above, hw_spans, hw_steps
from strandline_analytics.silver.kept import PLACE, place
from strandline_analytics.silver.tables import Silver

# ---- group_events
# Orders the reports of coordinators on groups and members, and derives the owners of partitions as step functions.
#
# A group's events are in the order of coordinator epochs, which are the leader epochs of the coordinator's partition,
# and within one in that of its leader's numbers. Reports of a coordinator at or after the end of its term are a
# zombie's, and left out like a leader's looks. Once an hour a coordinator repeats its whole state (``is_repeated``):
# that is a state from then on, and no change.
#
# Invariant: nothing is known of a group before the first of its events that was read, nor beyond the last word of the
# controller about the partition of its coordinator.


GROUP_KEY = (*PARTITION_KEY, "group_id")
"""The key of a group, at the partition of its coordinator."""

ORDER = ("leader_epoch", "incarnation", "seq")
"""The columns by which the events of a group are ordered."""

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
    """Per partition of the control plane, with its ``topic``: ``heard_us``, until which anything is known of it."""
    return silver.control.groupBy(*PARTITION_KEY, "topic").agg(F.max("t1").alias("heard_us"))


def living(silver: Silver) -> DataFrame:
    """The periods [t0, t1) in which a group was known to have members: cluster_id, group_id."""
    changes = group_events(silver).where("event_type = 'GROUP_CHANGE'")
    return _held_to_next(silver, changes, ()).where("n_members > 0").select("cluster_id", "group_id", "t0", "t1")


def owned(silver: Silver) -> DataFrame:
    """The owners of partitions: the consumed ``PLACE``, cluster_id, group_id, member_id, [t0, t1).

    A partition that a member must give up does not count as assigned to it.
    """

    def make() -> DataFrame:
        changes = group_events(silver).where("event_type = 'MEMBER_CHANGE'")
        rows = _held_to_next(silver, changes, ("member_id",)).withColumn("_named", F.explode("assigned"))
        topic_id, partition = F.substring_index("_named", ":", 1), F.substring_index("_named", ":", -1).cast("int")
        rows = rows.select(
            "cluster_id", "group_id", "member_id", "t0", "t1", topic_id.alias("topic_id"), partition.alias("partition")
        )
        rows = rows.select(place(), "cluster_id", "group_id", "member_id", "t0", "t1")
        return joined(rows, (PLACE, "cluster_id", "group_id", "member_id"))

    return silver.plan(("owned",), make)


def joined(intervals: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Intervals [t0, t1) of each ``by``, merged if they touch or overlap."""
    order = Window.partitionBy(*by).orderBy("t0", "t1")
    reached = F.max("t1").over(order.rowsBetween(Window.unboundedPreceding, -1))
    rows = intervals.withColumn("_apart", F.coalesce((F.col("t0") > reached).cast("int"), F.lit(1)))
    rows = rows.withColumn("_run", F.sum("_apart").over(order))
    return rows.groupBy(*by, "_run").agg(F.min("t0").alias("t0"), F.max("t1").alias("t1")).drop("_run")


def _held_to_next(silver: Silver, changes: DataFrame, of: tuple[str, ...]) -> DataFrame:
    """Changes as intervals [t0, t1): each holds to the next one of the same group, and of the same ``of``."""
    order = Window.partitionBy(*GROUP_KEY, *of).orderBy(*ORDER)
    rows = changes.join(F.broadcast(heard_until(silver)), list(PARTITION_KEY), "left")
    until = F.coalesce(F.lead("t").over(order), F.col("heard_us"))
    return rows.withColumns({"t0": F.col("t"), "t1": until}).where("t1 > t0")


BELIEVED_US = 180_000_000
"""The validity of a row: three times the minute in which every group's offset is reported once."""

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


def steps(silver: Silver) -> DataFrame:
    """The HW of the partitions that groups read, as `hw_steps`."""
    read = commits(silver).select(PLACE).distinct()
    return silver.keep(("hw steps of groups",), lambda: hw_steps(silver, read), samples=True, in_place=True)


def group_spans(silver: Silver) -> DataFrame:
    """PLACE, group_id, [t0, t1), committed, and the leader that reported the HW: the periods in which both are known.

    ``above_us``: the moment from which the HW is above the committed offset; null if it is not in this period.
    """
    return silver.keep(("group spans",), lambda: _group_spans(silver), samples=True)


def _group_spans(silver: Silver) -> DataFrame:
    known = _met(silver, hw_spans(steps(silver)), [*LEADER[1:]]).select("*", "_hw.*").drop("_hw", "until")
    asked = known.select(*LEADER, F.col("committed").alias("_offset")).distinct()
    rises = steps(silver).select(*LEADER, F.col("hw").alias("_offset"), F.col("t0").alias("_at"))
    passed = first_above(rises, asked, LEADER, offset="committed", found="_passed")
    above = F.when(F.col("_passed") < F.col("t1"), F.greatest("_passed", "t0"))
    return known.join(passed, [*LEADER, "committed"]).withColumn("above_us", above).drop("_passed")


def group_lags(silver: Silver) -> DataFrame:
    """PLACE, group_id, [t0, t1), hw and committed: each step of both, in the periods in which both are known."""
    return silver.plan(("group lags",), lambda: _met(silver, steps(silver), ["hw"]).select("*", "_hw.hw").drop("_hw"))


def _met(silver: Silver, stands: DataFrame, values: list[str]) -> DataFrame:
    """Committed offsets joined with the known HW: PLACE, group_id, [t0, t1), committed and ``_hw``, the values.

    Args:
        stands: periods [t0, t1) of partitions with ``values``.
    """
    held = _held(silver)
    groups = held.select(*_PLACE_OF_GROUP).distinct()
    of_groups = stands.join(F.broadcast(groups), PLACE)
    known = of_groups.select(*_PLACE_OF_GROUP, "t0", F.struct(*values, F.col("t1").alias("until")).alias("_hw"))
    committed = F.struct("committed", F.col("t1").alias("until")).alias("_held")
    both = known.unionByName(held.select(*_PLACE_OF_GROUP, "t0", committed), allowMissingColumns=True)
    order = Window.partitionBy(*_PLACE_OF_GROUP).orderBy("t0")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = both.repartition(*_PLACE_OF_GROUP).select(
        *_PLACE_OF_GROUP,
        "t0",
        F.lead("t0").over(order).alias("_next"),
        F.last("_hw", ignorenulls=True).over(so_far).alias("_hw"),
        F.last("_held", ignorenulls=True).over(so_far).alias("_held"),
    )
    # Having no committed offset is a state too; it just has no lag.
    rows = rows.where("_hw IS NOT NULL AND _held.committed IS NOT NULL")
    rows = rows.withColumn("t1", F.least("_next", "_hw.until", "_held.until")).where("t1 > t0")
    return rows.select(*_PLACE_OF_GROUP, "t0", "t1", F.col("_held.committed").alias("committed"), "_hw")


def _held(silver: Silver) -> DataFrame:
    """Committed offsets, as intervals [t0, t1)."""
    epoch = F.col("coordinator_epoch")
    order = Window.partitionBy(*_PLACE_OF_GROUP).orderBy("t", epoch.asc_nulls_first(), "node_id", "incarnation", "seq")
    newest = F.max(epoch).over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    rows = commits(silver).withColumn("_newest", newest).where(epoch.isNull() | (epoch == F.col("_newest")))
    until = F.least(F.lead("t").over(order), F.col("t") + BELIEVED_US)
    rows = rows.select(*_PLACE_OF_GROUP, F.col("t").alias("t0"), until.alias("t1"), "committed")
    return rows.where("t1 > t0")
