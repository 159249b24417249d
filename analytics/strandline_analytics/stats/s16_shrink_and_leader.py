"""S16: did the shrink come before, with or after the change of leader?

For each change of leader the nearest shrink within 10 s, and for each shrink the nearest change of leader. Same
partition epoch: one decision. Otherwise the order is that of partition epochs, never of clocks; clocks only say how
near. Of two equally near the earlier epoch counts.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.s08_isr_changes import REMOVES
from strandline_analytics.timeline.causes import MOVED

NEAR_US = 10_000_000
"""Delta: 10 seconds."""

_CHANGES = (
    "(event_type = 'LEADER_CHANGE' AND NOT reason <=> 'created' "
    f"AND NOT (reason <=> '{MOVED}' AND old_leader <=> new_leader))"
)

_OF_CHANGES = {
    "simultaneous": "simultaneous",
    "shrink_precedes": "other_first",
    "shrink_follows": "other_later",
    "unrelated": "unrelated",
}
_OF_SHRINKS = {
    "shrinks_simultaneous": "simultaneous",
    "shrinks_before": "other_later",
    "shrinks_after": "other_first",
    "shrinks_unrelated": "unrelated",
}


def leader_changes(silver: Silver) -> DataFrame:
    """One row per committed change of leader: key, topic, partition_epoch, t, old_leader, new_leader, election_type.

    The first leader of a new topic takes over from no other and is no change; nor is the epoch that a move begins
    under the same leader.
    """
    return silver.plan(("leader changes",), lambda: _leader_changes(silver))


def _leader_changes(silver: Silver) -> DataFrame:
    rows = silver.control_rows.where(_CHANGES)
    reported = ("old_leader", "new_leader", "new_leader_epoch", "reason", "election_type")
    return rows.groupBy(*PARTITION_KEY, "topic", "partition_epoch").agg(
        F.min("t").alias("t"), *(F.min(name).alias(name) for name in reported)
    )


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Changes of leader by their relation to the nearest shrink, and shrinks by theirs to the nearest change."""
    is_shrink = F.col("event_type") == "ISR_CHANGE"
    rows = silver.control_rows.where(f"{_CHANGES} OR (event_type = 'ISR_CHANGE' AND {REMOVES})")
    both = rows.groupBy(*PARTITION_KEY, "topic", "partition_epoch", is_shrink.alias("is_shrink")).agg(
        F.min("t").alias("t")
    )
    others = both.select(
        *PARTITION_KEY,
        F.col("partition_epoch").alias("_epoch"),
        F.col("t").alias("_t"),
        (~F.col("is_shrink")).alias("is_shrink"),
    )
    pairs = both.join(others, [*PARTITION_KEY, "is_shrink"], "left")
    away = F.abs(F.col("_t") - F.col("t"))
    other = F.col("_epoch") != F.col("partition_epoch")
    near = F.when((away <= NEAR_US) | ~other, F.struct(other, away, F.col("_epoch")))
    epoch = F.min(near)["_epoch"]
    relation = (
        F.when(epoch.isNull(), F.lit("unrelated"))
        .when(epoch == F.col("partition_epoch"), F.lit("simultaneous"))
        .when(epoch < F.col("partition_epoch"), F.lit("other_first"))
        .otherwise(F.lit("other_later"))
    )
    rows = scope.place(pairs.groupBy(*both.columns).agg(relation.alias("_relation")))

    def counted(*, is_shrink: bool, relation: str) -> Column:
        return F.count_if((F.col("is_shrink") == is_shrink) & (F.col("_relation") == relation))

    return rows.groupBy(*scope.columns).agg(
        F.count_if(~F.col("is_shrink")).alias("leader_changes"),
        *(counted(is_shrink=False, relation=of).alias(name) for name, of in _OF_CHANGES.items()),
        F.count_if("is_shrink").alias("shrinks"),
        *(counted(is_shrink=True, relation=of).alias(name) for name, of in _OF_SHRINKS.items()),
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
        Value("shrinks", "bigint", "transitions", "committed changes that removed at least one replica", counts=True),
        Value(
            "shrinks_simultaneous",
            "bigint",
            "transitions",
            "with a change of leader in the same partition epoch",
            counts=True,
        ),
        Value(
            "shrinks_before",
            "bigint",
            "transitions",
            "nearest change of leader in a later epoch, within 10 s",
            counts=True,
        ),
        Value(
            "shrinks_after",
            "bigint",
            "transitions",
            "nearest change of leader in an earlier epoch, within 10 s",
            counts=True,
        ),
        Value("shrinks_unrelated", "bigint", "transitions", "no change of leader within 10 s", counts=True),
    ),
    compute=compute,
    needs_coverage=False,
)
