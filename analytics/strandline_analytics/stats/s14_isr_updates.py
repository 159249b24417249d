"""S14: how long proposals for an ISR took, how many failed and why, and how many were never answered.

One leader's monotonic clock (class M). A proposal without a result is abandoned if the leader's term ended, else open.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.ranks import nearest_rank


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per group: proposals by how they ended, and latencies of those that were answered."""
    rows = scope.place(proposals(silver).where(F.col("t").isNotNull()))
    latency = F.col("latency_us")
    counts = rows.groupBy(*scope.columns).agg(
        F.count("*").alias("proposals"),
        *(F.count_if(F.col("ended_as") == how).alias(how) for how in ("committed", "refused", "timeout")),
        *(F.count_if(F.col("ended_as") == how).alias(how) for how in ("abandoned", "open")),
        *nearest_rank(latency, {"p50_us": 50, "p95_us": 95, "p99_us": 99}),
        F.max(latency).alias("max_us"),
        F.max(F.when(F.col("ended_as").isin("open", "abandoned"), _stuck(scope))).alias("max_stuck_us"),
    )
    codes = rows.where("ended_as = 'refused'").groupBy(*scope.columns, "error_code").agg(F.count("*").alias("_n"))
    codes = codes.groupBy(*scope.columns).agg(
        F.map_from_entries(F.sort_array(F.collect_list(F.struct("error_code", "_n")))).alias("refused_by_code")
    )
    return counts.join(codes, list(scope.columns), "left")


def proposals(silver: Silver) -> DataFrame:
    """One row per proposal: key, topic, t, ended_as, latency_us, error_code, gave_up_at (null while the term lasts)."""
    told = silver.of_type("ALTER_PARTITION")
    asked = F.col("phase") == "proposed"
    once = told.groupBy(*PARTITION_KEY, "topic", "node_id", "incarnation", "leader_epoch", "request_id").agg(
        F.min(F.when(asked, F.col("ts_wall_us"))).alias("t"),
        F.max(F.when(~asked, F.col("latency_us"))).alias("latency_us"),
        F.max(F.when(F.col("phase") == "result", F.col("error_code"))).alias("error_code"),
        F.bool_or(F.col("phase") == "timeout").alias("_timeout"),
    )
    rows = once.join(silver.terms, [*PARTITION_KEY, "leader_epoch"], "left")
    ended = (
        F.when(F.col("error_code") == 0, F.lit("committed"))
        .when(F.col("error_code").isNotNull(), F.lit("refused"))
        .when(F.col("_timeout"), F.lit("timeout"))
        .when(F.col("term_end") < F.lit(2**62), F.lit("abandoned"))
        .otherwise(F.lit("open"))
    )
    return rows.withColumn("ended_as", ended).withColumnRenamed("term_end", "gave_up_at")


def _stuck(scope: Scope) -> Column:
    return F.least(F.coalesce("gave_up_at", F.lit(scope.end_us)), F.lit(scope.end_us)) - F.col("t")


STATISTIC = Statistic(
    id="s14",
    name="isr_updates",
    title="Latency and failures of ISR updates",
    values=(
        Value("proposals", "bigint", "proposals", "AlterPartition proposals"),
        Value("committed", "bigint", "proposals", "committed by the controller"),
        Value("refused", "bigint", "proposals", "refused with an error code"),
        Value("timeout", "bigint", "proposals", "given up by the leader"),
        Value("abandoned", "bigint", "proposals", "without an answer when the leader's term ended"),
        Value("open", "bigint", "proposals", "without an answer, the term goes on: censored"),
        Value("p50_us", "bigint", "us", "median of the time to an answer, nearest rank"),
        Value("p95_us", "bigint", "us", "95th percentile"),
        Value("p99_us", "bigint", "us", "99th percentile"),
        Value("max_us", "bigint", "us", "longest time to an answer"),
        Value("max_stuck_us", "bigint", "us", "longest time without an answer, abandoned and open"),
        Value("refused_by_code", "map<int,bigint>", "proposals", "refusals by Kafka's error number"),
    ),
    compute=compute,
    needs_coverage=False,
)
