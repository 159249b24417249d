"""S25: which commits of groups were refused and why, and for how long no member had a partition.

A partition has no owner while the group has members, some member had the partition before, and none has it: between two
owners, while it is asked back, or because the assignor gave it to no member.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.groups import commits, joined, living, owned
from strandline_analytics.silver.kept import GROUP, PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value

_GROUP_OF_CLUSTER = ("cluster_id", "group_id")
_PLACE_OF_GROUP = (PLACE, *_GROUP_OF_CLUSTER)


def ownership(silver: Silver) -> DataFrame:
    """When a group was known to have a partition: PLACE, group_id, [t0, t1), and ``is_unowned``, as some had it before.

    What a group without members has lost is not without an owner: no member asks for it.
    """
    return silver.plan(("ownership",), lambda: _ownership(silver))


def _ownership(silver: Silver) -> DataFrame:
    had = joined(owned(silver).select(*_PLACE_OF_GROUP, "t0", "t1"), _PLACE_OF_GROUP)
    order = Window.partitionBy(*_PLACE_OF_GROUP).orderBy("t0")
    # Behind the last owner no member has it for as long as the group is known to live.
    gaps = had.select(*_PLACE_OF_GROUP, F.col("t1").alias("_g0"), F.lead("t0").over(order).alias("_g1"))
    lived = joined(living(silver), _GROUP_OF_CLUSTER)
    both = gaps.join(F.broadcast(lived), list(_GROUP_OF_CLUSTER))
    both = both.withColumns({"t0": F.greatest("t0", "_g0"), "t1": F.least("t1", "_g1")}).where("t1 > t0")
    columns = [PLACE, "group_id", "t0", "t1"]
    free = both.select(*columns, F.lit(True).alias("is_unowned"))
    return had.select(*columns, F.lit(False).alias("is_unowned")).unionByName(free)


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per group: commits, refusals by error, and times without an owner."""
    by = [*GROUP, "group_id"]
    reported = scope.place(silver.grouped(commits(silver), scope))
    refused = F.aggregate(F.map_values("n_error"), F.lit(0).cast("bigint"), lambda so_far, n: so_far + n)
    counts = reported.groupBy(*by).agg(
        F.sum("n_commits").alias("commits"), F.sum(F.coalesce(refused, F.lit(0))).alias("refused")
    )
    errors = reported.select(*by, F.explode("n_error").alias("_error", "_n")).where("_n > 0")
    errors = errors.groupBy(*by, "_error").agg(F.sum("_n").alias("_n"))
    errors = errors.groupBy(*by).agg(
        F.map_from_entries(F.sort_array(F.collect_list(F.struct("_error", "_n")))).alias("refused_by_error")
    )
    pieces = scope.clip(silver.grouped(ownership(silver), scope)).withColumn("dur", F.col("t1") - F.col("t0"))
    unowned = F.when(F.col("is_unowned"), F.col("dur"))
    spent = pieces.groupBy(*by).agg(
        F.count(unowned).alias("unowned"),
        F.coalesce(F.sum(unowned), F.lit(0)).alias("unowned_us"),
        F.max(unowned).alias("unowned_longest_us"),
    )
    figures = counts.join(errors, by, "left").join(spent, by, "full")
    return silver.named(figures, scope)


STATISTIC = Statistic(
    id="s25",
    name="group_commits_and_owners",
    title="Refused commits and partitions without an owner",
    headline="unowned_us",
    extra=(Value("group_id", "string", "", "the consumer group; null where there was none"),),
    values=(
        Value("commits", "bigint", "commits", "offsets committed or forgotten; null if none was reported"),
        Value("refused", "bigint", "commits", "commits that were refused"),
        Value("refused_by_error", "map<string,bigint>", "commits", "refusals by the name of Kafka's error"),
        Value("unowned", "bigint", "times", "times in which no member had a partition that one had had"),
        Value("unowned_us", "bigint", "us", "how long these were in the window"),
        Value("unowned_longest_us", "bigint", "us", "longest of them in the window"),
    ),
    compute=compute,
    reads_samples=True,
    needs_coverage=False,
    of_groups=True,
)
