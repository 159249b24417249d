"""S17: which shrinks belong together, and what they have in common: a node, a leader, a rack.

Shrinks of a cluster that are at most 5 s apart form a chain; those that were asked for, as a controlled shutdown,
chain among themselves, for they are no part of a failure beside them. Labels, the first that fits: single_node (one
node has at least 0.8 of the removals), leader_side (one leader has 0.8 of them, and removals on two nodes or more),
rack (one rack has 0.8, and two nodes or more), mixed. Fewer than three shrinks get no label: too little to speak of.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.s09_removals_by_cause import classified_removals
from strandline_analytics.timeline.causes import PLANNED

GAP_US = 5_000_000
"""G: 5 seconds."""


def incidents(silver: Silver) -> DataFrame:
    """One row per chain: cluster_id, kind, t (first shrink), ended_us, counts, shares and label."""
    rows = _numbered(silver)
    chain = ["cluster_id", "kind", "_chain"]
    whole = rows.groupBy(*chain).agg(
        F.min("t").alias("t"),
        F.max("t").alias("ended_us"),
        F.count_distinct("topic_id", "partition", "partition_epoch").alias("shrinks"),
        F.count_distinct("topic_id", "partition").alias("partitions"),
        F.count("*").alias("removals"),
        F.count_distinct("replica_id").alias("nodes"),
    )
    for name, of in (("node", "replica_id"), ("leader", "leader"), ("rack", "rack")):
        shares = rows.where(F.col(of).isNotNull()).groupBy(*chain, of).agg(F.count("*").alias("_n"))
        top = shares.groupBy(*chain).agg(
            F.min_by(of, F.struct(-F.col("_n"), F.col(of))).alias(f"top_{name}"), F.max("_n").alias("_top")
        )
        whole = (
            whole.join(top, chain, "left").withColumn(f"{name}_share", F.col("_top") / F.col("removals")).drop("_top")
        )
    return whole.join(_hosted(silver), ["cluster_id", "top_node"], "left").withColumns(
        {"node_lift": F.col("node_share") / F.col("_hosted_share"), "label": _label()}
    )


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """The incidents that begin in a window, one row each."""
    return scope.place(incidents(silver)).withColumnRenamed("t", "began_us").drop("_chain", "_hosted_share")


def _numbered(silver: Silver) -> DataFrame:
    rows = classified_removals(silver)
    sessions = silver.of_type("NODE_SESSION").where("rack IS NOT NULL").groupBy("cluster_id", "subject_node_id")
    racks = sessions.agg(F.max_by("rack", "ts_wall_us").alias("rack")).withColumnRenamed(
        "subject_node_id", "replica_id"
    )
    rows = rows.join(racks, ["cluster_id", "replica_id"], "left")
    is_planned = F.col("reported_cause").isin(*sorted(PLANNED))
    rows = rows.withColumn("kind", F.when(is_planned, F.lit("planned")).otherwise(F.lit("unplanned")))
    order = Window.partitionBy("cluster_id", "kind").orderBy(
        "t", "topic_id", "partition", "partition_epoch", "replica_id"
    )
    apart = F.coalesce(F.col("t") - F.lag("t").over(order) > GAP_US, F.lit(True))
    return rows.withColumn("_apart", apart.cast("int")).withColumn("_chain", F.sum("_apart").over(order))


def _hosted(silver: Silver) -> DataFrame:
    """Which share of all replicas each node hosts, by the latest assignment of each partition."""
    latest = silver.control.groupBy("cluster_id", "topic_id", "partition").agg(F.max_by("replicas", "t0").alias("_r"))
    placed = latest.select("cluster_id", F.explode("_r").alias("top_node")).groupBy("cluster_id", "top_node")
    whole = Window.partitionBy("cluster_id")
    return placed.agg(F.count("*").alias("_n")).select(
        "cluster_id", "top_node", (F.col("_n") / F.sum("_n").over(whole)).alias("_hosted_share")
    )


def _label() -> Column:
    return (
        F.when(F.col("shrinks") < 3, F.lit(None).cast("string"))
        .when(F.col("node_share") >= 0.8, F.lit("single_node"))
        .when((F.col("leader_share") >= 0.8) & (F.col("nodes") >= 2), F.lit("leader_side"))
        .when((F.col("rack_share") >= 0.8) & (F.col("nodes") >= 2), F.lit("rack"))
        .otherwise(F.lit("mixed"))
    )


STATISTIC = Statistic(
    id="s17",
    name="incidents",
    title="Correlated incidents",
    headline="shrinks",
    extra=(
        Value("began_us", "bigint", "us", "time of the first shrink of the chain"),
        Value("kind", "string", "", "planned if all of it was requested, else unplanned"),
    ),
    values=(
        Value("ended_us", "bigint", "us", "time of the last shrink"),
        Value("shrinks", "bigint", "transitions", "shrinks of the chain"),
        Value("partitions", "bigint", "partitions", "partitions that shrank"),
        Value("removals", "bigint", "replicas", "replicas removed"),
        Value("nodes", "bigint", "nodes", "nodes whose replicas were removed"),
        Value("label", "string", "", "single_node, leader_side, rack or mixed; null below three shrinks"),
        Value("top_node", "int", "node", "the node most removals were on"),
        Value("node_share", "double", "", "its share of the removals"),
        Value("node_lift", "double", "", "that share over the share of all replicas that the node hosts"),
        Value("top_leader", "int", "node", "the leader after most removals"),
        Value("leader_share", "double", "", "its share"),
        Value("top_rack", "string", "", "the rack most removals were in"),
        Value("rack_share", "double", "", "its share"),
    ),
    compute=compute,
    needs_coverage=False,
    only_cluster=True,
)
