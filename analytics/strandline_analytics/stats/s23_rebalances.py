"""S23: how long consumer groups rebalanced, and which member was waited for.

A rebalance is a time in which a group is Assigning or Reconciling: from the change with which its epoch rose and it was
Stable or Empty no more, to the change with which it is again. Further rises of the epoch in between are part of it. A
change after which it is Stable at once is none. The slowest member is the one that changed last before the end: as long
as it had not, the group could not be Stable.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.groups import GROUP_KEY, ORDER, group_events, heard_until
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import nearest_rank

_MOVING = ("Assigning", "Reconciling")


def rebalances(silver: Silver) -> DataFrame:
    """One row per rebalance: GROUP_KEY, topic, [t0, t1), is_start_seen, is_end_seen, slowest_member."""
    return silver.plan(("rebalances",), lambda: _rebalances(silver))


def _rebalances(silver: Silver) -> DataFrame:
    order = Window.partitionBy(*GROUP_KEY).orderBy(*ORDER)
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_change = F.col("event_type") == "GROUP_CHANGE"
    was_moving = F.last(F.when(is_change, F.col("new_state").isin(*_MOVING)), ignorenulls=True).over(
        order.rowsBetween(Window.unboundedPreceding, -1)
    )
    moves, moved = F.col("new_state").isin(*_MOVING), F.col("old_state").isin(*_MOVING)
    rows = group_events(silver).withColumns(
        {
            "_moves": is_change & moves,
            # Where the row before said that it moves and this one says that it did not, what was in between is lost.
            "_begins": is_change & moves & (~moved | ~F.coalesce(was_moving, F.lit(False))),
            "_settles": is_change & ~moves,
        }
    )
    run = [*GROUP_KEY, "_run"]
    rows = rows.withColumn("_run", F.sum(F.col("_begins").cast("int")).over(so_far)).where("_run > 0")
    in_run = Window.partitionBy(*run).orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn("_over", F.sum(F.col("_settles").cast("int")).over(in_run))
    place = F.struct(*ORDER)
    is_of_member = F.col("member_id").isNotNull() & ~F.col("is_repeated")
    found = rows.groupBy(*run).agg(
        F.min(F.when(F.col("_begins"), F.col("t"))).alias("t0"),
        F.bool_or(F.col("_begins") & ~moved).alias("is_start_seen"),
        F.min_by(F.struct(F.col("t"), moved.alias("is_seen")), F.when(F.col("_settles"), place)).alias("_end"),
        F.max_by("member_id", F.when((F.col("_over") == 0) & is_of_member, place)).alias("slowest_member"),
    )
    found = found.join(F.broadcast(heard_until(silver)), list(PARTITION_KEY), "left")
    following = F.lead("t0").over(Window.partitionBy(*GROUP_KEY).orderBy("_run"))
    return found.select(
        *GROUP_KEY,
        "topic",
        "t0",
        F.coalesce("_end.t", following, "heard_us").alias("t1"),
        "is_start_seen",
        F.coalesce("_end.is_seen", F.lit(False)).alias("is_end_seen"),
        "slowest_member",
    )


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per group: rebalances that ended, those that were cut, their lengths, and who was waited for."""
    pieces = scope.clip(rebalances(silver)).withColumn("dur", F.col("t1") - F.col("t0"))
    # What ends at the end of the window ends outside of it.
    ended = ~F.col("cut_end") & (F.col("t1") < F.col("window_end")) & F.col("is_end_seen")
    is_whole = ~F.col("cut_start") & F.col("is_start_seen") & ended
    by = [*scope.columns, "group_id"]
    pieces = pieces.withColumn("_whole", is_whole)
    length = F.when(F.col("_whole"), F.col("dur"))
    figures = pieces.groupBy(*by).agg(
        F.count(length).alias("rebalances"),
        F.count_if(~F.col("_whole")).alias("unfinished"),
        F.sum("dur").alias("total_us"),
        *nearest_rank(length, {"p50_us": 50, "p95_us": 95}),
        F.max(length).alias("max_us"),
        F.max(F.when(~F.col("_whole"), F.col("dur"))).alias("max_unfinished_us"),
        F.max_by("slowest_member", F.when(F.col("_whole"), F.struct("dur", -F.col("t0")))).alias("slowest_member"),
    )
    waited = pieces.where("_whole AND slowest_member IS NOT NULL")
    waited = waited.groupBy(*by, "slowest_member").agg(F.count("*").alias("_n"))
    waited = waited.groupBy(*by).agg(
        F.map_from_entries(F.sort_array(F.collect_list(F.struct("slowest_member", "_n")))).alias("waited_for")
    )
    return figures.join(waited, by, "left")


STATISTIC = Statistic(
    id="s23",
    name="group_rebalances",
    title="Rebalances of groups",
    headline="total_us",
    extra=(Value("group_id", "string", "", "the consumer group"),),
    values=(
        Value("rebalances", "bigint", "rebalances", "rebalances that began and ended in the window"),
        Value("unfinished", "bigint", "rebalances", "rebalances cut by the window or of unknown start or end"),
        Value("total_us", "bigint", "us", "time in the window, unfinished included"),
        Value("p50_us", "bigint", "us", "median of their length, nearest rank"),
        Value("p95_us", "bigint", "us", "95th percentile, nearest rank"),
        Value("max_us", "bigint", "us", "longest rebalance"),
        Value("max_unfinished_us", "bigint", "us", "longest unfinished one: it lasted at least so long"),
        Value("slowest_member", "string", "", "the last to change in the longest rebalance"),
        Value("waited_for", "map<string,bigint>", "rebalances", "member -> rebalances in which it changed last"),
    ),
    compute=compute,
    needs_coverage=False,
    of_groups=True,
)
