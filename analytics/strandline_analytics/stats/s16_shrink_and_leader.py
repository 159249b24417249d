"""S16: did the shrink come before, with or after the change of leader?

For each change of leader the nearest shrink within 10 s. Same partition epoch: one decision. Otherwise the order is
that of partition epochs, never of clocks; clocks only say how near. Of two equally near the earlier epoch counts.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.s08_isr_changes import isr_transitions

NEAR_US = 10_000_000
"""Delta: 10 seconds."""


def leader_changes(silver: Silver) -> DataFrame:
    """One row per committed change of leader: key, topic, partition_epoch, t, old_leader, new_leader, election_type.

    The first leader of a new topic takes over from nobody and is none.
    """
    return silver.plan(("leader changes",), lambda: _leader_changes(silver))


def _leader_changes(silver: Silver) -> DataFrame:
    rows = silver.control_rows.where("event_type = 'LEADER_CHANGE' AND NOT reason <=> 'created'")
    reported = ("old_leader", "new_leader", "new_leader_epoch", "reason", "election_type")
    return rows.groupBy(*PARTITION_KEY, "topic", "partition_epoch").agg(
        F.min("t").alias("t"), *(F.min(name).alias(name) for name in reported)
    )


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Changes of leader by their relation to the nearest shrink."""
    changes = leader_changes(silver).select(*PARTITION_KEY, "topic", "partition_epoch", "t")
    shrinks = isr_transitions(silver).where(F.size("left") > 0)
    shrinks = shrinks.select(*PARTITION_KEY, F.col("partition_epoch").alias("_epoch"), F.col("t").alias("_t"))
    pairs = changes.join(shrinks, list(PARTITION_KEY), "left")
    away = F.abs(F.col("_t") - F.col("t"))
    other = F.col("_epoch") != F.col("partition_epoch")
    near = F.when((away <= NEAR_US) | ~other, F.struct(other, away, F.col("_epoch")))
    nearest = pairs.groupBy(*changes.columns).agg(F.min(near).alias("_nearest"))
    epoch = F.col("_nearest._epoch")
    relation = (
        F.when(epoch.isNull(), F.lit("unrelated"))
        .when(epoch == F.col("partition_epoch"), F.lit("simultaneous"))
        .when(epoch < F.col("partition_epoch"), F.lit("shrink_precedes"))
        .otherwise(F.lit("shrink_follows"))
    )
    rows = scope.place(nearest.withColumn("_relation", relation))
    names = ("simultaneous", "shrink_precedes", "shrink_follows", "unrelated")
    return rows.groupBy(*scope.columns).agg(
        F.count("*").alias("leader_changes"), *(F.count_if(F.col("_relation") == name).alias(name) for name in names)
    )


STATISTIC = Statistic(
    id="s16",
    name="shrink_and_leader",
    title="Shrinks and leader changes",
    headline="leader_changes",
    values=(
        Value("leader_changes", "bigint", "changes", "committed changes of leader, also to no leader", counts=True),
        Value("simultaneous", "bigint", "changes", "with a shrink in the same partition epoch", counts=True),
        Value("shrink_precedes", "bigint", "changes", "nearest shrink in an earlier epoch, within 10 s", counts=True),
        Value("shrink_follows", "bigint", "changes", "nearest shrink in a later epoch, within 10 s", counts=True),
        Value("unrelated", "bigint", "changes", "no shrink within 10 s", counts=True),
    ),
    compute=compute,
    needs_coverage=False,
)
