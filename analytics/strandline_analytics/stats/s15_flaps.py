"""S15: which replicas flap: are removed again soon after they returned.

A flap is a removal within 10 minutes of the replica's own return. Removals that are at most 10 minutes apart form a
session; a session of two or more is flapping. What happened before the window is looked at, and not counted: a session
is flapping in a window if a removal in the window follows another one, be that one in the window or before it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.s08_isr_changes import isr_transitions

FLAP_US = 600_000_000
"""F: 10 minutes."""

_REPLICA = (*PARTITION_KEY, "replica_id")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Counts per replica."""
    moves = isr_transitions(silver)
    went = moves.select(*PARTITION_KEY, "topic", "partition_epoch", "t", F.explode("left").alias("replica_id"))
    came = moves.select(*PARTITION_KEY, "topic", "partition_epoch", "t", F.explode("came").alias("replica_id"))
    both = went.withColumn("goes", F.lit(True)).unionByName(came.withColumn("goes", F.lit(False)))
    order = Window.partitionBy(*_REPLICA).orderBy("partition_epoch")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    rows = both.withColumns(
        {
            "_came": F.last(F.when(~F.col("goes"), F.col("t")), ignorenulls=True).over(before),
            "_went": F.last(F.when(F.col("goes"), F.col("t")), ignorenulls=True).over(before),
        }
    )
    rows = rows.where("goes").withColumns(
        {
            "is_flap": F.coalesce(F.col("t") - F.col("_came") <= FLAP_US, F.lit(False)),
            "_begins": F.coalesce(F.col("t") - F.col("_went") > FLAP_US, F.lit(True)),
        }
    )
    rows = rows.withColumn("_session", F.sum(F.col("_begins").cast("int")).over(order))
    own = (column for column in _REPLICA if column not in scope.columns)
    removals = scope.place(rows).groupBy(*scope.columns, *own, "_session")
    sessions = removals.agg(
        F.count("*").alias("_removals"),
        F.count_if("is_flap").alias("_flaps"),
        F.bool_or(~F.col("_begins")).alias("_flapping"),
    )
    return sessions.groupBy(*scope.columns, "replica_id").agg(
        F.sum("_removals").alias("removals"),
        F.sum("_flaps").alias("flaps"),
        F.count("*").alias("sessions"),
        F.count_if("_flapping").alias("flapping_sessions"),
    )


STATISTIC = Statistic(
    id="s15",
    name="flaps",
    title="Flapping replicas",
    headline="removals",
    extra=(Value("replica_id", "int", "node", "the replica"),),
    values=(
        Value("removals", "bigint", "replicas", "removals from the ISR"),
        Value("flaps", "bigint", "replicas", "of them within 10 minutes of the return before"),
        Value("sessions", "bigint", "sessions", "runs of removals at most 10 minutes apart"),
        Value("flapping_sessions", "bigint", "sessions", "of them with two or more removals"),
    ),
    compute=compute,
    needs_coverage=False,
)
