"""When a replica was out of the ISR: from the commit of its removal to the commit of its return.

Invariant: a stay outside survives changes of the leader, because the ISR alone defines it; it ends as ``rejoined``, as
``reassigned`` when the partition is no longer placed on the node, or as ``unknown`` where transitions were lost; what
was lost behind a change that was read says nothing about that change.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY

_REPLICA = (*PARTITION_KEY, "replica_id")


def stays_outside(control: DataFrame) -> DataFrame:
    """One row per stay: key, topic, replica_id, t0, t1, ended_by (null: still out), ``seen_leaving``.

    ``seen_leaving`` is false for a replica that was out when the record begins: then t0 is no removal.
    """
    # A node that leaves the assignment is looked at once more, to see that it left.
    order = Window.partitionBy(*PARTITION_KEY).orderBy("partition_epoch", "t0")
    states = control.withColumn("_before", F.coalesce(F.lag("replicas").over(order), F.array().cast("array<int>")))
    rows = states.select(
        *PARTITION_KEY, "topic", "t0", "t1", "partition_epoch", "known", "is_isr_read", "isr", "replicas",
        F.explode(F.array_union("replicas", "_before")).alias("replica_id"),
    )  # fmt: skip
    here = (
        F.when(F.array_contains("isr", F.col("replica_id")), F.lit("rejoined"))
        .when(~F.array_contains("replicas", F.col("replica_id")), F.lit("reassigned"))
        .otherwise(F.lit("out"))
    )
    # Where a state begins it may be known, and where the next one does not: transitions were lost in between.
    begins = F.when(F.col("known") | (F.col("is_isr_read") & (here != "out")), here).otherwise(F.lit("unknown"))
    own = Window.partitionBy(*_REPLICA).orderBy("partition_epoch", "t0")
    rows = rows.withColumn("_where", begins)
    rows = rows.withColumn("_was", F.lag(F.when(F.col("known"), F.col("_where")).otherwise(F.lit("unknown"))).over(own))
    rows = rows.withColumn("_began", (F.col("_where") == "out") & ~F.col("_was").eqNullSafe("out"))
    rows = rows.withColumn("_next", F.lead("_where").over(own)).where("_where = 'out'")
    rows = rows.withColumn(
        "_stay", F.sum(F.col("_began").cast("int")).over(own.rowsBetween(Window.unboundedPreceding, 0))
    )
    # Where a clock went back, several decisions bear one time.
    order_in_stay = F.struct("partition_epoch", "t0")
    return (
        rows.groupBy(*_REPLICA, "topic", "_stay")
        .agg(
            F.min("t0").alias("t0"),
            F.max("t1").alias("t1"),
            F.max_by("_next", order_in_stay).alias("ended_by"),
            (F.min_by("_was", order_in_stay) == "rejoined").alias("seen_leaving"),
        )
        .na.fill({"seen_leaving": False})
        .drop("_stay")
    )
