"""Decides what is known of each removal from an ISR: when, who, by whom, for what cause, and how far it had come.

The controller's row says that it happened and when; the leader's echo of the same partition epoch alone knows how far
the removed replica had come (`strandline.export.schema`). One row comes of both.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.silver.tables import Silver

_CHANGE = (*PARTITION_KEY, "partition_epoch")


def removals(silver: Silver) -> DataFrame:
    """One row per replica removed by a committed change.

    Columns: key, topic, partition_epoch, t, replica_id, cause, initiator, leader (null: none), leader_node_id (whose
    clock the next two are of), last_fetch_us, last_caught_up_us, leo, lag_time_max_us, epoch_start_us (when the leader
    took up its epoch, by its own clock; null if unknown).
    """
    changes = silver.control_rows.where("event_type = 'ISR_CHANGE'")
    once = changes.groupBy(*_CHANGE, "topic").agg(
        F.min("t").alias("t"),
        *(F.first(name, ignorenulls=True).alias(name) for name in ("old_isr", "new_isr", "cause", "initiator")),
        F.first("removed", ignorenulls=True).alias("_told"),
    )
    rows = once.withColumn("replica_id", F.explode(F.array_except("old_isr", "new_isr"))).drop("old_isr", "new_isr")
    rows = _with_progress(rows, silver)
    held = silver.control.select(*_CHANGE, "leader", "leader_epoch", "lag_time_max_ms").dropDuplicates([*_CHANGE])
    rows = rows.join(held, list(_CHANGE), "left")
    starts = silver.of_type("EPOCH_START").groupBy(*PARTITION_KEY, "leader_epoch")
    began = starts.agg(F.min("ts_wall_us").alias("epoch_start_us"))
    return rows.join(began, [*PARTITION_KEY, "leader_epoch"], "left").withColumn(
        "lag_time_max_us", F.col("lag_time_max_ms") * 1_000
    )


def _with_progress(rows: DataFrame, silver: Silver) -> DataFrame:
    """Add how far each removed replica had come, from the leader's echo before the controller's row."""
    echoes = silver.of_type("ISR_CHANGE").where("meta_offset IS NULL")
    echoes = echoes.groupBy(*_CHANGE).agg(
        F.first("removed", ignorenulls=True).alias("_echoed"), F.first("node_id").alias("leader_node_id")
    )
    joined = rows.join(echoes, list(_CHANGE), "left")
    member = F.expr(
        "coalesce(filter(_echoed, m -> m.replica_id = replica_id)[0], filter(_told, m -> m.replica_id = replica_id)[0])"
    )
    return joined.withColumn("_member", member).select(
        *rows.drop("_told").columns,
        "leader_node_id",
        "_member.leo",
        "_member.last_fetch_us",
        "_member.last_caught_up_us",
    )
