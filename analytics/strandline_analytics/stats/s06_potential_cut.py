"""S6: had the leader died, how much would have been cut? And had the election been unclean?

At each look: clean best and worst case over the members of the ISR, and what an unclean election of a living outsider
would cost of the committed records. A member of the ISR below the HW breaks the protocol and is counted by itself.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.kept import GROUP, PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import weighted_mean


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Time-weighted mean and maximum of the possible cuts."""
    pieces = scope.clip(silver.grouped(_possible_cuts(silver), scope)).withColumn("dur", F.col("t1") - F.col("t0"))
    alone = F.col("n_members") == 0
    figures = pieces.groupBy(*GROUP).agg(
        F.sum("dur").alias("known_us"),
        weighted_mean(F.col("clean_worst"), F.col("dur")).alias("clean_worst_mean_records"),
        F.max("clean_worst").alias("clean_worst_max_records"),
        F.max("clean_best").alias("clean_best_max_records"),
        F.max("unclean").alias("unclean_committed_max_records"),
        F.sum(F.when(alone, F.col("dur")).otherwise(0)).alias("no_clean_successor_us"),
        F.sum("n_below_hw").alias("n_below_hw"),
    )
    return silver.named(figures, scope)


def _possible_cuts(silver: Silver) -> DataFrame:
    """One row per look: its interval and what each kind of election would have cut.

    The clean cuts are null where the leader was alone, and where it did not know yet how far a member had come.
    """
    member = F.col("in_isr") & ~F.col("is_leader")
    outsider = ~F.col("in_isr") & F.col("expected_state").isin("catching_up", "reassigning")
    unknown = F.count_if(member & F.col("leo").isNull())
    look = silver.believed_looks.groupBy(PLACE, "node_id", "incarnation", "leader_epoch", "sample_id")
    return look.agg(
        F.max(F.when(F.col("is_leader"), F.col("t0"))).alias("t0"),
        F.max(F.when(F.col("is_leader"), F.col("t1"))).alias("t1"),
        F.count_if(member).alias("n_members"),
        F.when(unknown == 0, F.max("leader_leo") - F.max(F.when(member, F.col("leo")))).alias("clean_best"),
        F.when(unknown == 0, F.max("leader_leo") - F.min(F.when(member, F.col("leo")))).alias("clean_worst"),
        F.max(F.when(outsider, F.greatest(F.lit(0), F.col("hw") - F.col("leo")))).alias("unclean"),
        F.count_if(member & (F.col("leo") < F.col("hw"))).alias("n_below_hw"),
    ).where("t0 IS NOT NULL")


STATISTIC = Statistic(
    id="s06",
    name="potential_cut",
    title="What a failover would have cut",
    headline="clean_worst_max_records",
    values=(
        Value("clean_worst_mean_records", "double", "records", "time-weighted mean: LEO - the least LEO of a member"),
        Value("clean_worst_max_records", "bigint", "records", "largest of it"),
        Value("clean_best_max_records", "bigint", "records", "largest LEO - the greatest LEO of a member"),
        Value("unclean_committed_max_records", "bigint", "records", "largest HW - LEO of a living replica outside"),
        Value("no_clean_successor_us", "bigint", "us", "for how long the leader was alone in the ISR"),
        Value("n_below_hw", "bigint", "samples", "members below the HW: must be 0", counts=True),
    ),
    compute=compute,
    reads_samples=True,
)
