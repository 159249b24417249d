"""Finds when a replica was out of the ISR: from the commit of its removal to the commit of its return.

Invariant: a stay outside survives changes of the leader, because the ISR alone defines it; it ends as ``rejoined``,
as ``reassigned`` when the partition is no longer placed on the node, or as ``unknown`` if transitions were lost;
losses after a change that was read do not affect that change.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline.export.schema import CONTROLLER_NODE_ID
from strandline_analytics.scope import FOREVER_US, PARTITION_KEY
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.control import LEFT
from strandline_analytics.silver.tables import Silver

# ---- lso_holds
# Finds the transactions that held back the LSO of a partition, and when, as its leaders reported it.
#
# A leader reports a transaction once it has held the LSO back for a second, once a minute while it does, and when it is
# decided. At most one does so at a time. A hold ends with its decision, with the next hold of the same term, or with
# the term; the next leader reports the same transaction as a hold of its own. If none of these was read, it is valid
# for three minutes after the last report, as a look is for three times its interval.

BELIEVED_US = 180_000_000
"""The validity of a report: three times the minute after which it is repeated."""

_HOLD = (*PARTITION_KEY, "leader_epoch", "first_offset")


def reported(silver: Silver) -> DataFrame:
    """TRANSACTION_OPEN and TRANSACTION_DECIDED rows, all times in the controller's, with ``term_end`` of their leaders.

    Decisions of a leader at or after the end of its term are a zombie's, and left out.
    """

    def make() -> DataFrame:
        rows = silver.of_type("TRANSACTION_OPEN", "TRANSACTION_DECIDED").where("partition IS NOT NULL")
        rows = rows.select(
            *_HOLD, "node_id", "event_type", "ts_wall_us", "held_since_us", "first_us", "last_us", "producer_id",
            "producer_epoch", "outcome", "held_ms", "n_coalesced", "hw",
        )  # fmt: skip
        rows = in_controller_time(rows, silver.clocks, "node_id", "ts_wall_us", "held_since_us", "first_us", "last_us")
        ends = silver.terms.select(*PARTITION_KEY, "leader_epoch", "term_end")
        rows = rows.join(F.broadcast(ends), [*PARTITION_KEY, "leader_epoch"], "left")
        return rows.where("event_type = 'TRANSACTION_OPEN' OR term_end IS NULL OR last_us < term_end")

    return silver.keep(("lso reports",), make)


def holds(silver: Silver) -> DataFrame:
    """One row per hold: PARTITION_KEY, topic, [t0, t1), first_offset, producer_id, producer_epoch, outcome (null if its
    decision was not seen), largest_hw."""
    return silver.plan(("lso holds",), lambda: _holds(silver))


def _holds(silver: Silver) -> DataFrame:
    is_open = F.col("event_type") == "TRANSACTION_OPEN"
    started = F.when(is_open, F.col("held_since_us")).otherwise(F.col("first_us") - F.col("held_ms") * 1_000)
    rows = reported(silver).where("first_offset IS NOT NULL")
    rows = rows.groupBy(*_HOLD).agg(
        F.min(started).alias("t0"),
        F.max("producer_id").alias("producer_id"),
        F.max("producer_epoch").alias("producer_epoch"),
        F.min(F.when(~is_open, F.col("first_us"))).alias("_decided_us"),
        F.min(F.when(~is_open, F.col("outcome"))).alias("outcome"),
        F.max("ts_wall_us").alias("_heard_us"),
        F.max("hw").alias("largest_hw"),
        F.max("term_end").alias("term_end"),
    )
    following = F.lead("t0").over(Window.partitionBy(*PARTITION_KEY, "leader_epoch").orderBy("t0", "first_offset"))
    lasted = F.coalesce("_decided_us", F.least(following, F.col("_heard_us") + BELIEVED_US))
    rows = rows.withColumn("t1", F.least(lasted, F.col("term_end"))).where("t1 > t0")
    rows = rows.drop("_decided_us", "_heard_us", "term_end")
    return rows.join(F.broadcast(silver.keys), list(PARTITION_KEY))


_REPLICA = (*PARTITION_KEY, "replica_id")


def stays_outside(control: DataFrame) -> DataFrame:
    """One row per stay: key, topic, replica_id, t0, t1, ended_by (null if still out), ``seen_leaving``.

    ``seen_leaving`` is false for a replica that was out when the data begin: then t0 is not a removal.
    """
    # A node that leaves the assignment gets one more row, which shows that it left.
    order = Window.partitionBy(*PARTITION_KEY).orderBy("partition_epoch", "t0")
    states = control.withColumn("_before", F.coalesce(F.lag("replicas").over(order), F.array().cast("array<int>")))
    rows = states.select(
        *PARTITION_KEY, "topic", "t0", "t1", "partition_epoch", "known", "is_isr_read", "isr", "replicas",
        F.explode(F.array_union("replicas", "_before")).alias("replica_id"),
    )  # fmt: skip
    here = (
        F.when(F.array_contains("isr", F.col("replica_id")), F.lit("rejoined"))
        .when(~F.array_contains("replicas", F.col("replica_id")), F.lit("reassigned"))
        .otherwise(F.lit("out"))
    )
    # A state may be known at its start although the next one does not adjoin it: transitions were lost in between.
    begins = F.when(F.col("known") | (F.col("is_isr_read") & (here != "out")), here).otherwise(F.lit("unknown"))
    own = Window.partitionBy(*_REPLICA).orderBy("partition_epoch", "t0")
    rows = rows.withColumn("_where", begins)
    rows = rows.withColumn("_was", F.lag(F.when(F.col("known"), F.col("_where")).otherwise(F.lit("unknown"))).over(own))
    rows = rows.withColumn("_began", (F.col("_where") == "out") & ~F.col("_was").eqNullSafe("out"))
    rows = rows.withColumn("_next", F.lead("_where").over(own)).where("_where = 'out'")
    rows = rows.withColumn(
        "_stay", F.sum(F.col("_began").cast("int")).over(own.rowsBetween(Window.unboundedPreceding, 0))
    )
    # If a clock went back, several decisions have the same time.
    order_in_stay = F.struct("partition_epoch", "t0")
    return (
        rows.groupBy(*_REPLICA, "topic", "_stay")
        .agg(
            F.min("t0").alias("t0"),
            F.max("t1").alias("t1"),
            F.max_by("_next", order_in_stay).alias("ended_by"),
            (F.min_by("_was", order_in_stay) == "rejoined").alias("seen_leaving"),
        )
        .na.fill({"seen_leaving": False})
        .drop("_stay")
    )


# ---- removals
# Collects the facts of each removal from an ISR: when, who, by whom, for what cause, and how far it had come.
#
# The controller's row shows that it happened and when; only the leader's echo of the same partition epoch has the
# progress of the removed replica (`strandline.export.schema`). Both are joined into one row.

_CHANGE = (*PARTITION_KEY, "partition_epoch")


def removals(silver: Silver) -> DataFrame:
    """One row per replica lost by a committed change (`control.LEFT`).

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
    rows = once.withColumn("replica_id", F.explode(F.expr(LEFT))).drop("old_isr", "new_isr")
    rows = _with_progress(rows, silver)
    held = silver.control.groupBy(*_CHANGE).agg(
        *(F.min_by(name, "t0").alias(name) for name in ("leader", "leader_epoch", "lag_time_max_ms"))
    )
    rows = _with_limit(rows.join(held, list(_CHANGE), "left"), silver)
    began = silver.epoch_starts.select(*PARTITION_KEY, "leader_epoch", F.col("began_us").alias("epoch_start_us"))
    return rows.join(began, [*PARTITION_KEY, "leader_epoch"], "left")


def _with_limit(rows: DataFrame, silver: Silver) -> DataFrame:
    """Convert lag_time_max_ms, as the controller reported it, to lag_time_max_us, from any source that reported it."""
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
    """Add the progress of each removed replica, from the leader's echo before the controller's row."""
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
