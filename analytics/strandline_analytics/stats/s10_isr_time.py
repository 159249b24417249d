"""S10: for how long partitions were whole, under-replicated, at and under their minimum ISR, and leaderless.

The states full / above / at / under / leaderless exclude each other and, with what is unknown, fill the window.
Leaderless is a state of its own: Kafka's UnderReplicatedPartitions shows 0 for it, for only a leader reports there;
``under_replicated_us`` counts it, ``under_replicated_led_us`` is what Kafka's gauge would show.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value, known_pieces


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Microseconds in each state, summed over the partitions of a group."""
    pieces = known_pieces(silver, scope)

    def spent(condition: str) -> Column:
        return F.sum(F.when(F.expr(condition), F.col("dur")).otherwise(0))

    return pieces.groupBy(*scope.columns).agg(
        F.sum("dur").alias("known_us"),
        spent("leader IS NOT NULL AND isr_size >= rf").alias("full_us"),
        spent("leader IS NULL OR isr_size < rf").alias("under_replicated_us"),
        spent("leader IS NOT NULL AND isr_size < rf").alias("under_replicated_led_us"),
        spent("leader IS NOT NULL AND isr_size > min_isr").alias("above_min_us"),
        spent("leader IS NOT NULL AND isr_size = min_isr").alias("at_min_us"),
        spent("leader IS NOT NULL AND isr_size < min_isr").alias("under_min_us"),
        spent("leader IS NULL").alias("leaderless_us"),
    )


STATISTIC = Statistic(
    id="s10",
    name="isr_time",
    title="Time under-replicated, at and under the minimum, leaderless",
    headline="under_replicated_us",
    values=(
        Value("full_us", "bigint", "us", "with a leader and every replica in the ISR"),
        Value("under_replicated_us", "bigint", "us", "the ISR smaller than RF, or no leader"),
        Value("under_replicated_led_us", "bigint", "us", "the same with a leader: what Kafka's gauge shows"),
        Value("above_min_us", "bigint", "us", "with a leader, the ISR above the effective minimum"),
        Value("at_min_us", "bigint", "us", "with a leader, the ISR at the minimum"),
        Value("under_min_us", "bigint", "us", "with a leader, the ISR below the minimum"),
        Value("leaderless_us", "bigint", "us", "without a leader"),
    ),
    compute=compute,
)
