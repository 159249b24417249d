"""S24: members that have a partition and do not move on in it, while what they have to read grows.

A member is stuck on a partition for a maximal time of more than a minute in which it has the partition, the group's lag
there is known and above 0, and the committed offset does not move, if the HW rose in it. It begins with the last of
these: the commit before, the HW that passed the offset, the assignment. Where the HW stands still as well, the lag does
not grow, and no member is blamed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.groups import group_spans, owned, steps
from strandline_analytics.silver.kept import GROUP, PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value

STUCK_US = 60_000_000
"""The limit: one minute."""

_PLACE_OF_GROUP = (PLACE, "group_id")


def stuck(silver: Silver) -> DataFrame:
    """One row per episode: PLACE, group_id, member_id, committed, [t0, t1), grew_records, lag_records."""
    return silver.plan(("stuck",), lambda: _stuck(silver))


def _stuck(silver: Silver) -> DataFrame:
    standing = _standing(silver)
    long = standing.groupBy(*_PLACE_OF_GROUP, "_run").agg((F.max("t1") - F.min("t0")).alias("_length"))
    long = long.where(F.col("_length") > STUCK_US).drop("_length")
    # Few stand for so long: only their pieces are compared with who had the partition.
    standing = standing.join(F.broadcast(long), [*_PLACE_OF_GROUP, "_run"])
    owners = owned(silver).select(*_PLACE_OF_GROUP, "member_id", F.col("t0").alias("_o0"), F.col("t1").alias("_o1"))
    pieces = standing.join(owners, list(_PLACE_OF_GROUP)).where("_o0 < t1 AND _o1 > t0")
    pieces = pieces.withColumns({"t0": F.greatest("t0", "_o0"), "t1": F.least("t1", "_o1")})
    episodes = pieces.groupBy(*_PLACE_OF_GROUP, "member_id", "_run", "_o0").agg(
        F.min("committed").alias("committed"), F.min("t0").alias("t0"), F.max("t1").alias("t1")
    )
    episodes = episodes.where(F.col("t1") - F.col("t0") > STUCK_US).drop("_run", "_o0")
    return _with_growth(silver, episodes).where("grew_records > 0")


def _with_growth(silver: Silver, episodes: DataFrame) -> DataFrame:
    """Add by how much the HW rose in each episode, and how far behind the group was at its end."""
    stood = steps(silver).select(PLACE, "hw", F.col("t0").alias("_h0"), F.col("t1").alias("_h1"))
    rows = stood.join(F.broadcast(episodes), PLACE).where("_h0 < t1 AND _h1 > t0")
    last, first = F.max_by("hw", "_h0"), F.min_by("hw", "_h0")
    return rows.groupBy(*episodes.columns).agg(
        (last - first).alias("grew_records"), (last - F.col("committed")).alias("lag_records")
    )


def _standing(silver: Silver) -> DataFrame:
    """The parts of `group_spans` with a lag above 0; where one offset stood without a gap they have one ``_run``."""
    order = Window.partitionBy(*_PLACE_OF_GROUP).orderBy("t0")
    goes_on = (F.lag("t1").over(order) == F.col("t0")) & (F.lag("committed").over(order) == F.col("committed"))
    rows = group_spans(silver).where("above_us IS NOT NULL").withColumn("t0", F.col("above_us"))
    rows = rows.withColumn("_begins", (~F.coalesce(goes_on, F.lit(False))).cast("int"))
    return rows.withColumn("_run", F.sum("_begins").over(order)).drop("_begins")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per group and member that was stuck; ``known_us`` is the time in which the group's lag is known."""
    by = [*GROUP, "group_id"]
    episodes = scope.clip(silver.grouped(stuck(silver), scope)).withColumn("dur", F.col("t1") - F.col("t0"))
    figures = episodes.groupBy(*by, "member_id").agg(
        F.count("*").alias("episodes"),
        F.sum("dur").alias("total_us"),
        F.max("dur").alias("longest_us"),
        F.max("grew_records").alias("grew_records"),
        F.max("lag_records").alias("lag_records"),
    )
    looked = scope.clip(silver.grouped(group_spans(silver), scope))
    known = looked.groupBy(*by).agg(F.sum(F.col("t1") - F.col("t0")).alias("known_us"))
    return silver.named(known.join(figures, by, "left"), scope)


STATISTIC = Statistic(
    id="s24",
    name="stuck_members",
    title="Stuck members of groups",
    headline="total_us",
    extra=(
        Value("group_id", "string", "", "the consumer group; null: none committed"),
        Value("member_id", "string", "", "the member that had the partition; null where none was stuck"),
    ),
    values=(
        Value("episodes", "bigint", "episodes", "times of more than 60 s that overlap the window", counts=True),
        Value("total_us", "bigint", "us", "their time in the window", counts=True),
        Value("longest_us", "bigint", "us", "longest of them in the window"),
        Value("grew_records", "bigint", "records", "largest rise of the HW in one of them"),
        Value("lag_records", "bigint", "records", "largest lag at the end of one of them"),
    ),
    compute=compute,
    reads_samples=True,
    of_groups=True,
)
