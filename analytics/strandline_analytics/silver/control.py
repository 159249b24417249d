"""Decides which state the control plane had when: leader, ISR, minimum, replicas, as step functions over time.

Sources: only rows of the controller; the leader's echoes add detail elsewhere but never a state of their own.
Order is that of partition epochs and of the metadata log, never that of clocks; time is corrected along it so that it
does not go back (`state-events` 2.5).

Invariant: where a partition epoch is missing, a transition was lost, and the interval before the hole is unknown.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from strandline.export.schema import CONTROLLER_NODE_ID, NO_LEADER
from strandline_analytics.scope import FOREVER_US, PARTITION_KEY

CONTROL_TYPES = ("ISR_CHANGE", "LEADER_CHANGE", "CONFIG_CHANGE", "STATE_SNAPSHOT")


def control_rows(transitions: DataFrame) -> DataFrame:
    """The controller's rows about partitions, each with its corrected time ``t``.

    Rows of one partition epoch are one decision and happen at once: at the time of the first of them.
    """
    rows = transitions.where(F.col("event_type").isin(*CONTROL_TYPES) & (F.col("node_id") == CONTROLLER_NODE_ID))
    rows = rows.where(F.col("partition").isNotNull())
    decides = F.col("event_type").isin("ISR_CHANGE", "LEADER_CHANGE")
    decision = Window.partitionBy(*PARTITION_KEY, "partition_epoch", decides)
    at = F.when(decides, F.min("ts_wall_us").over(decision)).otherwise(F.col("ts_wall_us"))
    so_far = _order().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn("_at", at).withColumn("t", F.max("_at").over(so_far))
    return rows.withColumn("went_back", F.col("_at") < F.col("t")).drop("_at")


def control_states(rows: DataFrame) -> DataFrame:
    """Step functions: one row per key and interval [t0, t1) with all that held in it.

    ``t1`` is FOREVER_US where nothing came after. ``known`` is false before a hole in the partition epochs.
    ``min_isr`` is the effective one, min(RF, min.insync.replicas). ``leader`` is null where nobody leads.
    """
    so_far = _order().rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def held(name: str) -> Column:
        return F.last(name, ignorenulls=True).over(so_far)

    following = F.lead("t").over(_order())
    epoch, next_epoch = F.col("partition_epoch"), F.lead("partition_epoch").over(_order())
    states = rows.select(
        *PARTITION_KEY,
        "topic",
        F.col("t").alias("t0"),
        F.coalesce(following, F.lit(FOREVER_US)).alias("t1"),
        "partition_epoch",
        held("leader_epoch").alias("leader_epoch"),
        held("new_leader").alias("_leader"),
        held("new_isr").alias("isr"),
        held("elr").alias("elr"),
        held("replicas").alias("replicas"),
        held("min_isr").alias("_min_isr"),
        held("lag_time_max_ms").alias("lag_time_max_ms"),
        F.coalesce(held("topic_deleted"), F.lit(False)).alias("is_deleted"),
        F.coalesce(next_epoch - epoch <= 1, F.lit(True)).alias("known"),
    )
    rf = F.coalesce(F.size("replicas"), F.lit(None).cast("int"))
    return (
        states.where("NOT is_deleted AND t1 > t0")
        .withColumn("leader", F.when(F.col("_leader") != NO_LEADER, F.col("_leader")))
        .withColumn("rf", rf)
        .withColumn("min_isr", F.least(rf, F.col("_min_isr")))
        .withColumn("isr_size", F.size("isr"))
        .drop("_leader", "_min_isr", "is_deleted")
    )


def terms(states: DataFrame) -> DataFrame:
    """When each leader epoch was in force: [commit of e, commit of e+1), by the controller's corrected time."""
    begun = states.where("leader_epoch IS NOT NULL").groupBy(*PARTITION_KEY, "leader_epoch")
    rows = begun.agg(F.min("t0").alias("term_start"), F.first("leader", ignorenulls=True).alias("term_leader"))
    order = Window.partitionBy(*PARTITION_KEY).orderBy("leader_epoch")
    return rows.withColumn("term_end", F.coalesce(F.lead("term_start").over(order), F.lit(FOREVER_US)))


def _order() -> WindowSpec:
    return Window.partitionBy(*PARTITION_KEY).orderBy("partition_epoch", "meta_offset", "ts_wall_us", "seq")
