"""S27: how transactions ended, and why those that were aborted were.

A coordinator reports every abort, with its cause, as it decides it: its producer asked for it, its time was over, or
another process asked for its identity. Of commits it reports those of long transactions by themselves and the others as
a sum every ten seconds. What it reported at or after the end of its term is left out.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per transactional id: ends by cause, and the longest transaction."""
    rows = silver.of_type("TRANSACTION_CHANGE").where("partition IS NOT NULL")
    open_us = F.col("ts_wall_us") - F.col("txn_start_us")
    rows = rows.select(
        *PARTITION_KEY, "leader_epoch", "node_id", "ts_wall_us", "transactional_id", "cause", "n_coalesced",
        open_us.alias("open_us"),
    )  # fmt: skip
    rows = in_controller_time(rows, silver.clocks, "node_id", "ts_wall_us")
    ends = silver.terms.select(*PARTITION_KEY, "leader_epoch", "term_end")
    rows = rows.join(F.broadcast(ends), [*PARTITION_KEY, "leader_epoch"], "left")
    rows = rows.where("term_end IS NULL OR ts_wall_us < term_end").join(F.broadcast(silver.keys), list(PARTITION_KEY))
    decides = F.col("cause").isin("committed", "aborted", "timeout", "fenced")
    return scope.place(rows, "ts_wall_us").groupBy(*scope.columns, "transactional_id").agg(
        _sum_of("committed").alias("committed"),
        _sum_of("aborted").alias("aborted_by_producer"),
        _sum_of("timeout").alias("timed_out"),
        _sum_of("fenced").alias("fenced"),
        _sum_of("marker_refused").alias("refused_markers"),
        F.max(F.when(decides, F.col("open_us"))).alias("longest_us"),
    )  # fmt: skip


def _sum_of(cause: str) -> Column:
    return F.sum(F.when(F.col("cause") == cause, F.col("n_coalesced")).otherwise(0))


STATISTIC = Statistic(
    id="s27",
    name="transaction_ends",
    title="How transactions ended",
    headline="timed_out",
    extra=(
        Value("transactional_id", "string", "", "the id, at its coordinator's partition; null: of short commits"),
    ),
    values=(
        Value("committed", "bigint", "transactions", "decided in the window: committed", counts=True),
        Value("aborted_by_producer", "bigint", "transactions", "aborted because their producer asked", counts=True),
        Value("timed_out", "bigint", "transactions", "aborted because they took too long", counts=True),
        Value("fenced", "bigint", "transactions", "aborted because another process took the id", counts=True),
        Value(
            "refused_markers", "bigint", "partitions", "that called a transaction over while its coordinator waited",
            counts=True,
        ),
        Value("longest_us", "bigint", "us", "longest that was reported by itself, from begin to decision"),
    ),
    compute=compute,
    needs_coverage=False,
    of_transactions=True,
)  # fmt: skip
