"""S8: how often the ISR shrank and grew, and by how many replicas.

Counted are committed decisions of the controller: distinct partition epochs. A transition may shrink and grow at once.
A replica that a move adds or takes away is in neither (S28).
Kafka's IsrShrinksPerSec marks only shrinks that a leader proposed and misses those of a dead node.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.control import LEFT
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value

REMOVES = f"size({LEFT}) > 0"
"""Whether a change of an ISR is a shrink."""


def isr_transitions(silver: Silver) -> DataFrame:
    """One row per committed change of an ISR: key, topic, t, partition_epoch, left (who went), came (who was added)."""
    return silver.plan(("ISR transitions",), lambda: _isr_transitions(silver))


def _isr_transitions(silver: Silver) -> DataFrame:
    changes = silver.control_rows.where("event_type = 'ISR_CHANGE'")
    reported = (F.first(name).alias(name) for name in ("old_isr", "new_isr", "cause", "adding"))
    once = changes.groupBy(*PARTITION_KEY, "topic", "partition_epoch").agg(F.min("t").alias("t"), *reported)
    came = F.array_except("new_isr", "old_isr")
    came = F.when(F.col("adding").isNull(), came).otherwise(F.array_except(came, "adding"))
    return once.withColumns({"left": F.expr(LEFT), "came": came})


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Counts per group and window."""
    placed = scope.place(isr_transitions(silver))
    return placed.groupBy(*scope.columns).agg(
        F.count_if(F.size("left") > 0).alias("shrinks"),
        F.count_if(F.size("came") > 0).alias("expands"),
        F.sum(F.size("left")).alias("removals"),
        F.sum(F.size("came")).alias("adds"),
    )


STATISTIC = Statistic(
    id="s08",
    name="isr_changes",
    title="Shrinks and expands of the ISR",
    headline="shrinks",
    values=(
        Value("shrinks", "bigint", "transitions", "committed changes that removed at least one replica", counts=True),
        Value("expands", "bigint", "transitions", "committed changes that added at least one replica", counts=True),
        Value("removals", "bigint", "replicas", "replicas removed, over all shrinks", counts=True),
        Value("adds", "bigint", "replicas", "replicas added, over all expands", counts=True),
    ),
    compute=compute,
    needs_coverage=False,
)
