"""S20: how late followers learned of a high watermark.

For each LOCAL_SAMPLE of a follower with HW v: its time - the first time the leader of that epoch had a HW of at least
v. Two clocks, both turned into the controller's time. The offset form, HW of the leader as of the sample - HW of the
follower, needs no difference of clocks beyond that. What the leader had when it took up its epoch counts as reached
then, however long ago it was. No follower learns of a HW before its leader has it: one that is ahead of what was
reported of its leader shows a move that was never reported, as of a leader that was killed, or a clock that was not
measured. What the leader had is not known.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.high_watermarks import advances
from strandline_analytics.silver.kept import GROUP, PLACE, place
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import nearest_rank

_TERM = (PLACE, "leader_epoch")
_TELLER = ("cluster_id", "leader_epoch", "node_id", "incarnation", "seq")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per follower: delays of the first sight of each HW, and how far it was behind in records."""
    # A copy of an advance is skipped by the search for the first; a copy of what a follower saw is not.
    risen = advances(silver).select(
        PLACE,
        *_TELLER[1:-1],
        F.lit(None).cast("bigint").alias("seq"),
        F.lit(True).alias("_leads"),
        F.col("new_hw").alias("hw"),
        F.col("last_us").alias("at"),
        "clock_err_us",
    )
    begun = silver.of_type("EPOCH_START").select(
        place(), *_TELLER, F.lit(True).alias("_leads"), "hw", F.col("ts_wall_us").alias("at")
    )
    seen = silver.written_samples("LOCAL_SAMPLE").select(
        place(), *_TELLER, F.lit(False).alias("_leads"), "hw", F.col("ts_wall_us").alias("at")
    )
    others = in_controller_time(begun.unionByName(seen), silver.clocks, "node_id", "at").drop("cluster_id")
    # The one shuffle: advances lie by partition of a topic already, within which what follows is ordered and grouped.
    both = risen.unionByName(others.repartition(PLACE))
    is_advance = F.col("_leads")
    # The earliest advance to at least this HW: the nearest from above, for a leader's HW only rises within its epoch.
    downward = Window.partitionBy(*_TERM).orderBy(F.desc("hw"), F.desc("_leads"), F.desc("at"))
    timewise = Window.partitionBy(*_TERM).orderBy("at", F.desc("_leads"), "hw")
    until_now = (Window.unboundedPreceding, Window.currentRow)
    rows = both.withColumn(
        "_reached",
        F.last(F.when(is_advance, F.struct("at", "clock_err_us")), ignorenulls=True).over(
            downward.rowsBetween(*until_now)
        ),
    ).withColumn(
        "_leader_hw", F.last(F.when(is_advance, F.col("hw")), ignorenulls=True).over(timewise.rowsBetween(*until_now))
    )
    rows = rows.where(~is_advance).withColumnRenamed("at", "t")
    own = Window.partitionBy(*_TERM, "node_id").orderBy("t", "incarnation", "seq")
    rows = rows.withColumn("_before", F.lag(F.struct("incarnation", "seq", "hw")).over(own))
    is_copy = F.struct("incarnation", "seq").eqNullSafe(F.struct("_before.incarnation", "_before.seq"))
    rows = rows.where(~is_copy)
    first_sight = ~F.col("hw").eqNullSafe(F.col("_before.hw"))
    rows = rows.withColumn("_delay", F.when(first_sight, F.col("t") - F.col("_reached.at")))
    reported = F.col("_leader_hw") - F.col("hw")
    rows = rows.withColumns({"_behind": F.when(reported >= 0, reported), "_is_ahead": reported < 0})
    figures = (
        scope.place(silver.grouped(rows, scope))
        .groupBy(*GROUP, F.col("node_id").alias("replica_id"))
        .agg(
            F.count("_delay").alias("observations"),
            *nearest_rank(F.col("_delay"), {"p50_us": 50, "p95_us": 95}),
            F.max("_delay").alias("max_us"),
            F.max("_behind").alias("behind_max_records"),
            F.avg("_behind").alias("behind_mean_records"),
            F.count_if("_is_ahead").alias("n_ahead"),
            F.count_if(F.col("_delay") < 0).alias("n_negative"),
            F.max(F.when(F.col("_delay").isNotNull(), F.col("clock_err_us") + F.col("_reached.clock_err_us"))).alias(
                "clock_err_us"
            ),
        )
    )
    return silver.named(figures, scope)


STATISTIC = Statistic(
    id="s20",
    name="hw_propagation",
    title="HW propagation to followers",
    headline="max_us",
    extra=(Value("replica_id", "int", "node", "the follower"),),
    values=(
        Value("observations", "bigint", "samples", "first sights of a new HW at the follower"),
        Value("p50_us", "bigint", "us", "median delay, nearest rank; two clocks"),
        Value("p95_us", "bigint", "us", "95th percentile"),
        Value("max_us", "bigint", "us", "longest delay"),
        Value("behind_max_records", "bigint", "records", "largest HW of the leader - HW of the follower"),
        Value("behind_mean_records", "double", "records", "mean of it over the samples"),
        Value(
            "n_ahead",
            "bigint",
            "samples",
            "samples above every HW reported by the leader; in no `behind`",
        ),
        Value("n_negative", "bigint", "samples", "delays below 0"),
        Value("clock_err_us", "bigint", "us", "largest error of the clocks' offsets"),
    ),
    compute=compute,
    reads_samples=True,
    needs_coverage=False,
)
