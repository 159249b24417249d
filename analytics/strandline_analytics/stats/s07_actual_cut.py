"""S7: how much was cut, and whether any of it was committed.

Per new epoch: the last known LEO of the epochs before it less its start offset, first by what was known before the
commit and then with what zombies appended after it. Per truncation: what the replica itself reported. A copy that is
cut while the record lives elsewhere is no loss; committed_lost counts records below an exposed HW that a leader lacked.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Sums over the epochs that started and the truncations that happened in a window."""
    by = list(scope.columns)
    epochs = (
        scope.place(_epoch_cuts(silver))
        .groupBy(*by)
        .agg(
            F.count("*").alias("epochs"),
            F.sum("tail").alias("tail_cut_records"),
            F.sum("tail_zombie").alias("tail_cut_with_zombies_records"),
            F.sum("lost").alias("committed_lost_records"),
        )
    )
    cuts = silver.of_type("TRUNCATION").withColumn("t", F.col("ts_wall_us"))
    cuts = cuts.withColumn("cut", F.greatest(F.lit(0), F.col("from_leo") - F.col("to_leo")))
    cuts = (
        scope.place(cuts)
        .groupBy(*by)
        .agg(
            F.count("*").alias("truncations"),
            F.sum("cut").alias("truncated_records"),
            F.max("cut").alias("truncated_max_records"),
            F.sum("committed_cut").alias("committed_cut_records"),
        )
    )
    counts = ["epochs", "truncations", "truncated_records", "committed_cut_records"]
    rows = scope.windows(silver.keys).join(epochs, by, "left").join(cuts, by, "left")
    return rows.na.fill(0, counts)


def _epoch_cuts(silver: Silver) -> DataFrame:
    """One row per EPOCH_START: what the epochs before it had beyond its start offset."""
    starts = silver.of_type("EPOCH_START").select(
        *PARTITION_KEY, "topic", "leader_epoch", F.col("ts_wall_us").alias("t"), "start_offset"
    )
    own = silver.looks.where("is_leader AND NOT is_double").groupBy(*PARTITION_KEY, "leader_epoch")
    ends = own.agg(
        F.max(F.when(~F.col("is_zombie"), F.col("leader_leo"))).alias("leo"),
        F.max("leader_leo").alias("leo_zombie"),
        F.max(F.when(~F.col("is_zombie"), F.col("hw"))).alias("hw"),
    ).withColumnRenamed("leader_epoch", "_before")
    joined = starts.join(ends, list(PARTITION_KEY), "left").where("_before IS NULL OR _before < leader_epoch")
    last = joined.groupBy(*starts.columns).agg(
        F.max_by("leo", "_before").alias("leo"), F.max("leo_zombie").alias("leo_zombie"), F.max("hw").alias("hw")
    )
    rows = starts.join(last, starts.columns, "left")

    def beyond(name: str) -> Column:
        return F.greatest(F.lit(0), F.col(name) - F.col("start_offset"))

    known = {"tail": "leo", "tail_zombie": "leo_zombie", "lost": "hw"}
    return rows.withColumns({name: F.when(F.col(of).isNotNull(), beyond(of)) for name, of in known.items()})


STATISTIC = Statistic(
    id="s07",
    name="actual_cut",
    title="What was cut",
    values=(
        Value("epochs", "bigint", "epochs", "leader epochs that started"),
        Value("tail_cut_records", "bigint", "records", "last LEO known of the epoch before - start offset"),
        Value("tail_cut_with_zombies_records", "bigint", "records", "the same with what zombies appended"),
        Value("committed_lost_records", "bigint", "records", "below an HW seen before, and not on the new leader"),
        Value("truncations", "bigint", "truncations", "times a replica cut its log"),
        Value("truncated_records", "bigint", "records", "records cut, over all copies"),
        Value("truncated_max_records", "bigint", "records", "largest single cut"),
        Value("committed_cut_records", "bigint", "records", "cut below the replica's own HW: must be 0"),
    ),
    compute=compute,
    reads_samples=True,
    needs_coverage=False,
)
