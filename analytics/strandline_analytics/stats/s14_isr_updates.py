"""S14: how long proposals for an ISR took, how many failed and why, and how many were never answered.

By one leader's monotonic clock, so no correction between clocks is needed. A proposal without a result is abandoned if
the leader's term ended, else open.
An answer at or after the end of the window is out of it, so that an hour's result depends on nothing behind it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from strandline_analytics.scope import FOREVER_US, PARTITION_KEY, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import nearest_rank


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per group: proposals by how they ended, and latencies of those that were answered."""
    rows = scope.place(proposals(silver).where(F.col("t").isNotNull()))
    rows = rows.withColumn("ended_as", _ended_as())
    latency = F.when(F.col("ended_as").isin("committed", "refused"), F.col("latency_us"))
    unanswered = F.col("ended_as").isin("timeout", "abandoned", "open")
    counts = rows.groupBy(*scope.columns).agg(
        F.count("*").alias("proposals"),
        *(F.count_if(F.col("ended_as") == how).alias(how) for how in ("committed", "refused", "timeout")),
        *(F.count_if(F.col("ended_as") == how).alias(how) for how in ("abandoned", "open")),
        *nearest_rank(latency, {"p50_us": 50, "p95_us": 95, "p99_us": 99}),
        F.max(latency).alias("max_us"),
        F.max(F.when(unanswered, _stuck())).alias("max_stuck_us"),
    )
    codes = rows.where("ended_as = 'refused'").groupBy(*scope.columns, "error_code").agg(F.count("*").alias("_n"))
    codes = codes.groupBy(*scope.columns).agg(
        F.map_from_entries(F.sort_array(F.collect_list(F.struct("error_code", "_n")))).alias("refused_by_code")
    )
    return counts.join(codes, list(scope.columns), "left")


def proposals(silver: Silver) -> DataFrame:
    """One row per proposal: key, topic, t, answered_at, latency_us, error_code, timed_out_at, term_end.

    Moments are in the controller's time. What did not happen is null; ``term_end`` is FOREVER_US while the term lasts.
    """
    reported = silver.of_type("ALTER_PARTITION")
    at = {phase: F.when(F.col("phase") == phase, F.col("ts_wall_us")) for phase in ("proposed", "result", "timeout")}
    is_result = F.col("phase") == "result"
    once = reported.groupBy(*PARTITION_KEY, "topic", "node_id", "incarnation", "leader_epoch", "request_id").agg(
        F.coalesce(F.min(at["proposed"]), F.min(F.when(is_result, F.col("ts_wall_us") - F.col("latency_us")))).alias(
            "t"
        ),
        F.min(at["result"]).alias("answered_at"),
        F.min(at["timeout"]).alias("timed_out_at"),
        F.max(F.when(is_result, F.col("latency_us"))).alias("latency_us"),
        F.max(F.when(is_result, F.col("error_code"))).alias("error_code"),
    )
    # Moments of one proposal are of one clock: one offset for all keeps what lies between them as it was.
    once = in_controller_time(once, silver.clocks, "node_id", "t", "answered_at", "timed_out_at")
    once = once.drop("clock_err_us")
    spans = silver.terms.select(*PARTITION_KEY, "leader_epoch", "term_end")
    return once.join(spans, [*PARTITION_KEY, "leader_epoch"], "left").na.fill(FOREVER_US, ["term_end"])


def _ended_as() -> Column:
    """How a proposal stood at the end of its window."""

    def seen(moment: str) -> Column:
        return F.col(moment) < F.col("window_end")

    return (
        F.when(seen("answered_at") & (F.col("error_code") == 0), F.lit("committed"))
        .when(seen("answered_at"), F.lit("refused"))
        .when(seen("timed_out_at"), F.lit("timeout"))
        .when(seen("term_end"), F.lit("abandoned"))
        .otherwise(F.lit("open"))
    )


def _stuck() -> Column:
    """How long a proposal was without an answer."""
    end = F.when(F.col("ended_as") == "timeout", F.col("timed_out_at")).otherwise(F.least("term_end", "window_end"))
    return end - F.col("t")


STATISTIC = Statistic(
    id="s14",
    name="isr_updates",
    title="Latency and failures of ISR updates",
    headline="max_us",
    values=(
        Value("proposals", "bigint", "proposals", "AlterPartition proposals", counts=True),
        Value("committed", "bigint", "proposals", "committed by the controller", counts=True),
        Value("refused", "bigint", "proposals", "refused with an error code", counts=True),
        Value("timeout", "bigint", "proposals", "given up by the leader", counts=True),
        Value("abandoned", "bigint", "proposals", "without an answer when the leader's term ended", counts=True),
        Value("open", "bigint", "proposals", "without an answer while the term continues: censored", counts=True),
        Value("p50_us", "bigint", "us", "median of the time to an answer, nearest rank"),
        Value("p95_us", "bigint", "us", "95th percentile"),
        Value("p99_us", "bigint", "us", "99th percentile"),
        Value("max_us", "bigint", "us", "longest time to an answer"),
        Value("max_stuck_us", "bigint", "us", "longest time without an answer: timeout, abandoned, open"),
        Value("refused_by_code", "map<int,bigint>", "proposals", "refusals by Kafka's error number"),
    ),
    compute=compute,
    needs_coverage=False,
)
