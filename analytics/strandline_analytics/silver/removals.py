"""What is known of each removal from an ISR: when, who, by whom, for what cause, and how far it had come.

The controller's row says that it happened and when; the leader's echo of the same partition epoch alone knows how far
the removed replica had come (`strandline.export.schema`). One row comes of both.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from strandline.export.schema import CONTROLLER_NODE_ID
from strandline_analytics.scope import FOREVER_US, PARTITION_KEY
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.tables import Silver

_CHANGE = (*PARTITION_KEY, "partition_epoch")


def removals(silver: Silver) -> DataFrame:
    """One row per replica removed by a committed change.

    Columns: key, topic, partition_epoch, t, replica_id, cause, initiator, leader (null: none), leader_node_id and
    echoed_us (whose clock the next two are of, and what it showed when they were reported), last_fetch_us,
    last_caught_up_us, leo, lag_time_max_us (as of t: the partition's, else what the leader declared at its start),
    epoch_start_us (when the leader took up its epoch, in the controller's time; null if unknown).
    """
    changes = silver.control_rows.where("event_type = 'ISR_CHANGE'")
    once = changes.groupBy(*_CHANGE, "topic").agg(
        F.min("t").alias("t"),
        *(F.min(name).alias(name) for name in ("old_isr", "new_isr", "cause", "initiator")),
        F.first("removed", ignorenulls=True).alias("_reported"),
    )
    rows = once.withColumn("replica_id", F.explode(F.array_except("old_isr", "new_isr"))).drop("old_isr", "new_isr")
    rows = _with_progress(rows, silver)
    held = silver.control.groupBy(*_CHANGE).agg(
        *(F.min_by(name, "t0").alias(name) for name in ("leader", "leader_epoch", "lag_time_max_ms"))
    )
    rows = _with_limit(rows.join(held, list(_CHANGE), "left"), silver)
    began = silver.epoch_starts.select(*PARTITION_KEY, "leader_epoch", F.col("began_us").alias("epoch_start_us"))
    return rows.join(began, [*PARTITION_KEY, "leader_epoch"], "left")


def _with_limit(rows: DataFrame, silver: Silver) -> DataFrame:
    """Turn lag_time_max_ms, as the controller reported it, into lag_time_max_us, reported by whom it may."""
    reported = silver.of_type("CONFIG_CHANGE").where("partition IS NULL AND lag_time_max_ms IS NOT NULL")
    reported = reported.select("cluster_id", "node_id", "incarnation", "seq", "ts_wall_us", "lag_time_max_ms")
    reported = in_controller_time(reported, silver.clocks, "node_id", "ts_wall_us")
    order = Window.partitionBy("cluster_id", "node_id").orderBy("ts_wall_us", "incarnation", "seq")
    settings = reported.select(
        F.col("cluster_id").alias("_cluster"),
        F.col("node_id").alias("_node"),
        F.col("lag_time_max_ms").alias("_own_ms"),
        F.col("ts_wall_us").alias("_from"),
        F.coalesce(F.lead("ts_wall_us").over(order), F.lit(FOREVER_US)).alias("_until"),
    )
    of_leader = (F.col("cluster_id") == F.col("_cluster")) & (F.coalesce("leader_node_id", "leader") == F.col("_node"))
    joined = rows.join(
        F.broadcast(settings), of_leader & (F.col("t") >= F.col("_from")) & (F.col("t") < F.col("_until")), "left"
    )
    limit = F.coalesce("lag_time_max_ms", "_own_ms") * 1_000
    return joined.select(*rows.drop("lag_time_max_ms").columns, limit.alias("lag_time_max_us"))


def _with_progress(rows: DataFrame, silver: Silver) -> DataFrame:
    """Add how far each removed replica had come, from the leader's echo before the controller's row."""
    echoes = silver.of_type("ISR_CHANGE").where(F.col("node_id") != CONTROLLER_NODE_ID)
    echoes = echoes.groupBy(*_CHANGE).agg(
        F.max_by("removed", "leader_epoch").alias("_echoed"),
        F.max_by("node_id", "leader_epoch").alias("leader_node_id"),
        F.max_by("ts_wall_us", "leader_epoch").alias("echoed_us"),
    )
    joined = rows.join(echoes, list(_CHANGE), "left")
    member = F.expr(
        "coalesce(filter(_echoed, m -> m.replica_id = replica_id)[0], "
        "filter(_reported, m -> m.replica_id = replica_id)[0])"
    )
    return joined.withColumn("_member", member).select(
        *rows.drop("_reported").columns,
        "leader_node_id",
        "echoed_us",
        "_member.leo",
        "_member.last_fetch_us",
        "_member.last_caught_up_us",
    )
