"""S18: when the high watermark stood still although there was something to commit, and who held it up.

An episode is a maximal interval with LEO > HW and HW constant for at least one second. It starts at the later of the
last advance and the first sight of LEO > HW; it ends with the next advance, with the epoch, or is cut by what is known.
Blockers are members of the maximal ISR whose durable LEO was the HW itself to the end, the leader included: a slow disk
of its own holds it up as well. Below the minimum ISR no replica blocks: the HW may not move (M18).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.high_watermarks import advances
from strandline_analytics.silver.kept import GROUP, PLACE, place
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value

STALL_US = 1_000_000
"""theta: one second."""

_SERIES = (PLACE, "leader_epoch", "incarnation")


def stalls(silver: Silver) -> DataFrame:
    """One row per episode: key, topic, leader_epoch, hw, t0, t1, ended_by, blockers, is_under_min."""
    return silver.keep(("stalls",), lambda: _stalls(silver), samples=True)


def _stalls(silver: Silver) -> DataFrame:
    episodes = silver.keep(("stalls", "episodes"), lambda: _episodes(silver), samples=True)
    # Who is at the HW at the last look was there all the time; at the first, all may be who have not fetched yet.
    # A collector of Kafka's knows no maximal ISR and no durable LEO: there a member with LEO = HW held it up.
    unknown = "in_maximal_isr IS NULL AND in_isr AND leo = hw"
    members = silver.believed_looks.where(f"leader_leo > hw AND ((in_maximal_isr AND durable_leo = hw) OR ({unknown}))")
    look = [*_SERIES, "hw", "_last_look"]
    # Episodes are few and looks are many: only the looks that are asked about are gathered.
    members = members.withColumnRenamed("sample_id", "_last_look").join(F.broadcast(episodes.select(*look)), look)
    blockers = members.groupBy(*look).agg(F.sort_array(F.collect_set("replica_id")).alias("blockers"))
    return _with_minimum(episodes.join(blockers, look, "left"), silver).select(
        *PARTITION_KEY, "topic", "leader_epoch", "hw", "t0", "t1", "ended_by", "blockers", "is_under_min"
    )


def _episodes(silver: Silver) -> DataFrame:
    """One row per episode, with ``_last_look``: which look showed it last."""
    waiting = heights(silver).groupBy(*_SERIES, "hw")
    episodes = waiting.agg(
        F.min("_t0").alias("_seen"),
        F.max("_t1").alias("_held"),
        F.max_by("_look", "_t0").alias("_last_look"),
        F.max("_into").alias("_came"),
        F.min("_outof").alias("_went"),
    ).where("_seen IS NOT NULL")
    # Of coalesced advances the border is not in the record; the next look with a higher HW bounds the end.
    order = Window.partitionBy(*_SERIES).orderBy("hw")
    episodes = episodes.withColumn("_next", F.lead("_seen").over(order))
    ends = silver.terms.select(place(), "leader_epoch", "term_end")
    episodes = episodes.join(F.broadcast(ends), [PLACE, "leader_epoch"], "left")
    end = F.least(F.coalesce("_went", F.least("_held", "_next")), F.col("term_end"))
    ended_by = (
        F.when(F.col("term_end") <= F.coalesce("_went", F.col("term_end")), F.lit("epoch_end"))
        .when(F.col("_went").isNotNull(), F.lit("advance"))
        .otherwise(F.lit("unknown"))
    )
    ended_by = F.when(F.col("_went").isNull() & (F.col("_held") < F.col("term_end")), F.lit("unknown")).otherwise(
        ended_by
    )
    episodes = episodes.withColumns({"t0": F.greatest("_seen", "_came"), "t1": end, "ended_by": ended_by})
    episodes = episodes.where(F.col("t1") - F.col("t0") >= STALL_US)
    return episodes.join(F.broadcast(silver.places), PLACE)


def heights(silver: Silver) -> DataFrame:
    """What was reported of each height of the HW: looks at it with something above, and advances to it and from it."""
    looks = silver.believed_looks.where("is_leader AND leader_leo > hw")
    # A copy of an advance moves neither the first nor the last of them.
    none = F.lit(None).cast("bigint")
    into = F.struct(F.col("new_hw").alias("hw"), F.col("last_us").alias("_into"), none.alias("_outof"))
    outof = F.struct(F.col("old_hw").alias("hw"), none.alias("_into"), F.col("first_us").alias("_outof"))
    moved = advances(silver).select(*_SERIES, F.explode(F.array(into, outof)).alias("_moved"))
    # Advances are not in a collector's export of Kafka: the HW is known to have stood still up to the last look at it.
    held = F.when(F.col("in_maximal_isr").isNull(), F.col("t0")).otherwise(F.col("t1"))
    seen = {"_t0": F.col("t0"), "_t1": held, "_look": F.col("sample_id")}
    rows = looks.select(
        *_SERIES, "hw", none.alias("_into"), none.alias("_outof"), *(c.alias(n) for n, c in seen.items())
    )
    # Both lie by partition of a topic, within which what follows is grouped and ordered: nothing is shuffled.
    return rows.unionByName(moved.select(*_SERIES, "_moved.*", *(none.alias(name) for name in seen)))


def _with_minimum(episodes: DataFrame, silver: Silver) -> DataFrame:
    """Add ``is_under_min``: whether the ISR was below the minimum at any time of the episode."""
    under = silver.control.where("known AND leader IS NOT NULL AND isr_size < min_isr")
    under = under.select(*PARTITION_KEY, F.col("t0").alias("_u0"), F.col("t1").alias("_u1"))
    overlaps = (F.col("_u0") < F.col("t1")) & (F.col("_u1") > F.col("t0"))
    joined = episodes.join(under, list(PARTITION_KEY), "left")
    columns = episodes.columns
    return joined.groupBy(*columns).agg(F.coalesce(F.bool_or(overlaps), F.lit(False)).alias("is_under_min"))


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Episodes that overlap a window, their time in it, and who blocked how many of them."""
    pieces = scope.clip(stalls(silver)).withColumn("dur", F.col("t1") - F.col("t0"))
    # What ends at the end of the window ends outside of it.
    goes_on = F.col("cut_end") | (F.col("t1") == F.col("window_end"))
    figures = pieces.groupBy(*scope.columns).agg(
        F.count("*").alias("episodes"),
        F.sum("dur").alias("total_us"),
        F.max("dur").alias("longest_us"),
        F.count_if("is_under_min").alias("under_min_episodes"),
        F.count_if(~goes_on & (F.col("ended_by") == "epoch_end")).alias("ended_by_epoch"),
        F.count_if(goes_on | (F.col("ended_by") == "unknown")).alias("censored"),
    )
    blamed = pieces.where("NOT is_under_min").withColumn("_blocker", F.explode("blockers"))
    blamed = blamed.groupBy(*scope.columns, "_blocker").agg(F.count("*").alias("_n"))
    blamed = blamed.groupBy(*scope.columns).agg(
        F.map_from_entries(F.sort_array(F.collect_list(F.struct("_blocker", "_n")))).alias("blockers")
    )
    looked = silver.leaders_pieces(scope).groupBy(*GROUP).agg(F.sum("dur").alias("known_us"))
    known = silver.named(looked, scope)
    return known.join(figures, list(scope.columns), "full").join(blamed, list(scope.columns), "left")


STATISTIC = Statistic(
    id="s18",
    name="hw_stalls",
    title="HW stalls",
    headline="total_us",
    values=(
        Value("episodes", "bigint", "episodes", "stalls of at least 1 s that overlap the window", counts=True),
        Value("total_us", "bigint", "us", "their time in the window", counts=True),
        Value("longest_us", "bigint", "us", "longest of them in the window"),
        Value("under_min_episodes", "bigint", "episodes", "of them with the ISR below the minimum", counts=True),
        Value("ended_by_epoch", "bigint", "episodes", "ended by a change of leader", counts=True),
        Value(
            "censored", "bigint", "episodes", "still going on at the end of the window or of what is known", counts=True
        ),
        Value("blockers", "map<int,bigint>", "episodes", "replica -> episodes that it held up"),
    ),
    compute=compute,
    reads_samples=True,
)
