"""S22: how many seconds a consumer group was behind.

age(t) = t - when the HW first passed the offset that the group committed, 0 while the HW is not above it: for how long
the oldest record that the group had not read could have been read. It follows from the steps of the HW, and no record
is read for it. Inside an interval it rises with slope 1, so its integral is exact, as in S3. Where an epoch started at
or below the offset, as after an unclean election, another record stands there: only sights since then count.

Where nothing reported a HW at or below the committed offset, the HW had passed it before anything that was read: only a
lower bound of the age is known, and the time is in no other figure.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.groups import group_spans
from strandline_analytics.silver.high_watermarks import advances, first_above, lines
from strandline_analytics.silver.kept import GROUP, PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Mean and maximum of the age; ``known_us`` is the time in which it is known exactly."""
    by = [*GROUP, "group_id"]
    rows = silver.plan(("ages",), lambda: ages(silver))
    pieces = scope.clip(silver.grouped(rows, scope)).withColumn("dur", F.col("t1") - F.col("t0"))
    aged = F.col("t1") - F.col("_since")
    doubled = (F.col("t0") + F.col("t1") - 2 * F.col("_since")).cast("decimal(38,0)") * F.col("dur")
    known = F.sum(F.when(F.col("_known"), F.col("dur")).otherwise(0))
    integral = F.coalesce(F.sum(F.when(F.col("_known"), doubled)), F.lit(0)).cast("double")
    figures = pieces.groupBy(*by).agg(
        known.alias("known_us"),
        F.when(known > 0, integral / (2 * known)).alias("mean_us"),
        F.max(F.when(F.col("_known"), F.coalesce(aged, F.lit(0)))).alias("max_us"),
        F.sum(F.when(F.col("_known") & F.col("_since").isNotNull() & F.col("is_estimated"), F.col("dur")).otherwise(0))
        .alias("estimated_us"),
        F.max(F.when(~F.col("_known"), aged)).alias("at_least_us"),
    )  # fmt: skip
    return silver.named(figures, scope)


def ages(silver: Silver) -> DataFrame:
    """`group_spans`, cut where the HW passes the committed offset: PLACE, group_id, [t0, t1), ``_since``, when the HW
    was first seen above the offset (null: it is not), ``_known`` and ``is_estimated``.

    Not known: no HW at or below the offset had been reported by then, and ``_since`` is only the first that was read.
    Estimated: no advance over the offset was reported, but a look that is above it.
    """
    lags = group_spans(silver)
    read = F.broadcast(lags.select(PLACE).distinct())
    looks = silver.leaders_looks.select(
        PLACE, "leader_epoch", F.col("hw").alias("_offset"), F.col("t0").alias("_at")
    ).join(read, PLACE, "left_semi")
    moved = advances(silver).join(read, PLACE, "left_semi")
    risen = moved.select(
        PLACE, "leader_epoch", F.col("new_hw").alias("_offset"), F.struct("last_us", "first_us").alias("_at")
    )
    epoch = [PLACE, "leader_epoch"]
    sights = looks.select(*epoch, "_offset").unionByName(risen.select(*epoch, "_offset"))
    of_lines = F.broadcast(silver.keep(("lines",), lambda: lines(silver, sights), samples=True))

    def since(seen: DataFrame) -> DataFrame:
        """Sights, as far as they are of the records of each line."""
        copies = seen.join(of_lines, epoch).withColumn("_offset", F.least("_offset", "shared"))
        return copies.select(PLACE, "line", "_offset", "_at")

    lags = lags.join(of_lines.where("is_own").select(*epoch, "line"), epoch, "left").na.fill({"line": 0})
    asked = lags.select(PLACE, "line", F.col("committed").alias("_offset")).distinct()
    # At or below an offset is above the one before it, seen from the other side.
    below = looks.drop("leader_epoch").unionByName(
        moved.select(PLACE, F.col("old_hw").alias("_offset"), F.col("first_us").alias("_at"))
    )
    below = below.withColumn("_offset", -F.col("_offset"))
    turned = asked.select(PLACE, (-F.col("_offset") - 1).alias("_offset")).distinct()
    lower = first_above(below, turned, [PLACE], found="_lower")
    lower = lower.withColumn("_offset", -F.col("_offset") - 1)
    by = [PLACE, "line"]
    found = first_above(since(looks), asked, by, found="_look")
    found = found.join(first_above(since(risen), asked, by, found="_rise"), [*by, "_offset"])
    found = found.join(lower, [PLACE, "_offset"])
    first = F.least("_look", "_rise.last_us")
    looked = F.col("_rise").isNull() | (F.col("_look") < F.col("_rise.first_us"))
    found = found.select(
        *by,
        F.col("_offset").alias("committed"),
        first.alias("since"),
        F.coalesce(F.col("_lower") <= first, F.lit(False)).alias("is_exact"),
        F.coalesce(looked, F.lit(False)).alias("is_estimated"),
    )
    above, none = F.col("above_us"), F.lit(None)
    level = _piece(F.col("t0"), F.coalesce(above, "t1"), none, F.lit(True))
    behind = _piece(above, F.col("t1"), F.col("since"), F.col("is_exact"))
    rows = lags.join(found, [*by, "committed"], "left")
    pieces = F.explode(F.filter(F.array(level, behind), lambda piece: piece["t0"] < piece["t1"]))
    own = (PLACE, "group_id", "is_estimated")
    return rows.select(*own, pieces.alias("_piece")).select(*own, "_piece.*")


def _piece(t0: Column, t1: Column, since: Column, known: Column) -> Column:
    return F.struct(t0.alias("t0"), t1.alias("t1"), since.cast("bigint").alias("_since"), known.alias("_known"))


STATISTIC = Statistic(
    id="s22",
    name="group_lag_time",
    title="Group lag, time",
    headline="max_us",
    extra=(Value("group_id", "string", "", "the consumer group; null: none committed"),),
    values=(
        Value("mean_us", "double", "us", "time-weighted mean time since the HW passed the committed offset, 0 if not"),
        Value("max_us", "bigint", "us", "longest such time, the left limit at the end of an interval"),
        Value("estimated_us", "bigint", "us", "for how long it counts from a look: no advance over it was reported"),
        Value("at_least_us", "bigint", "us", "longest time known as a lower bound; in no figure"),
    ),
    compute=compute,
    reads_samples=True,
    of_groups=True,
)
