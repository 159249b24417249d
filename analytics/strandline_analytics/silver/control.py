"""Derives the state of the control plane, leader, ISR, minimum and replicas, as step functions over time.

It reads only rows of the controller; the leader's echoes add detail elsewhere but never a state of their own.
Rows are in the order of partition epochs and of the metadata log, never of clocks; time is corrected along it so that
it does not go back (STATISTICS.md#conventions).

Invariant: if a partition epoch is missing, a transition was lost, and the interval before the hole is unknown. A
snapshot that shows a new partition epoch is such a hole too: its transition was not seen. And nothing is known beyond
the controller's last word (`last_words`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec, functions as F

from strandline.core.control.state import SKIP
from strandline.export.schema import CONTROLLER_NODE_ID, EVENT_TYPES, NO_LEADER
from strandline_analytics.scope import FOREVER_US, HOUR_US, PARTITION_KEY
from strandline_analytics.timeline.causes import MOVED

_PLACED = (
    *PARTITION_KEY, "topic", "event_type", "node_id", "incarnation", "seq", "meta_offset", "ts_wall_us", "n_copies",
    "leader_epoch", "partition_epoch",
)  # fmt: skip
"""The columns that identify every event and its place in the order."""
_REPORTED = (
    "old_isr", "new_isr", "removed", "added", "elr", "cause", "initiator",
    "old_leader", "new_leader", "old_leader_epoch", "new_leader_epoch", "reason", "election_type", "eligible_set",
    "replicas", "min_isr", "lag_time_max_ms", "topic_created", "topic_deleted",
    "phase", "adding_replicas", "removing_replicas", "original_replicas",
)  # fmt: skip
"""The columns that the control plane reports; most columns belong to other types of events."""

HEARD_US = 30_000_000
"""The validity of a heartbeat of the controller, us: three times its interval of 10 s, as for a look."""

CONTROL_TYPES = ("ISR_CHANGE", "LEADER_CHANGE", "CONFIG_CHANGE", "STATE_SNAPSHOT", "REASSIGNMENT")
AT_ONCE = ("ISR_CHANGE", "LEADER_CHANGE", "REASSIGNMENT")
"""Rows of these types and one partition epoch are one decision."""

LEFT = f"IF(cause <=> '{MOVED}', CAST(array() AS array<int>), array_except(old_isr, new_isr))"
"""The replicas that a change of an ISR lost. Those that a reassignment removes are not lost."""


def control_rows(transitions: DataFrame) -> DataFrame:
    """The controller's rows about partitions, each with its corrected time ``t``.

    Rows of one partition epoch are one decision and happen at once: at the time of the first of them. ``lost_before``
    is the number of partition epochs missing between a row and the one before it. ``is_moving``: a reassignment runs
    from this row on, and adds the replicas ``adding``; if the data begin during one, the snapshot shows it.

    A row of a type that this version does not know, with a partition epoch of its own, is included with only its place:
    it is ``is_unread``, and counted in its ``lost_before``.
    """
    is_foreign = ~F.col("event_type").isin(*EVENT_TYPES) & F.col("partition_epoch").isNotNull()
    rows = transitions.where(F.col("event_type").isin(*CONTROL_TYPES) | is_foreign)
    rows = rows.where((F.col("node_id") == CONTROLLER_NODE_ID) & F.col("partition").isNotNull())
    rows = rows.select(*_PLACED, *(F.when(~is_foreign, F.col(name)).alias(name) for name in _REPORTED))
    decides = F.col("event_type").isin(*AT_ONCE)
    decision = Window.partitionBy(*PARTITION_KEY, "partition_epoch", decides)
    at = F.when(decides, F.min("ts_wall_us").over(decision)).otherwise(F.col("ts_wall_us"))
    so_far = _order().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn("_at", at).withColumn("t", F.max("_at").over(so_far))
    # A reign's first change of a partition skips epochs in addition to counting one.
    risen = (F.col("partition_epoch") - F.lag("partition_epoch").over(_order())) % F.lit(SKIP)
    # A snapshot reports a state; the transition that made it should have come before it. A row of an unknown type
    # is a transition of which only the time is known.
    reports = F.col("event_type") == "STATE_SNAPSHOT"
    own = F.when(F.col("event_type").isin(*CONTROL_TYPES) & ~reports, F.lit(1)).otherwise(F.lit(0))
    is_unread = ~F.col("event_type").isin(*EVENT_TYPES) & (risen > 0)
    rows = rows.withColumn("lost_before", F.greatest(F.coalesce(risen, F.lit(0)) - own, F.lit(0)))
    return (
        rows.withColumn("_step", F.last(_step(), ignorenulls=True).over(so_far))
        .withColumn("is_moving", F.coalesce("_step.is_moving", F.lit(False)))
        .withColumn("adding", F.when(F.col("is_moving"), F.col("_step.adding")))
        .withColumn("went_back", F.col("_at") < F.col("t"))
        .withColumn("is_unread", F.coalesce(is_unread, F.lit(False)))
        .withColumn("topic", F.max("topic").over(Window.partitionBy(*PARTITION_KEY)))
        .drop("_at", "_step")
    )


def _step() -> Column:
    """Whether a reassignment runs from a row on, and the replicas it adds; null if the row does not show it."""
    # A queued reassignment has not changed any replicas yet.
    is_step = (F.col("event_type") == "REASSIGNMENT") & (F.col("phase") != "queued")
    # A snapshot taken during a reassignment names the original replicas.
    is_inside = (F.col("event_type") == "STATE_SNAPSHOT") & (F.size("original_replicas") > 0)
    begins_or_ends = is_step | F.coalesce(is_inside, F.lit(False))
    runs, adding = F.when(is_step, F.col("phase") == "started").otherwise(is_inside), F.col("adding_replicas")
    # A lost transition may have been its end.
    of_row = F.struct(F.coalesce(runs, F.lit(False)).alias("is_moving"), adding.alias("adding"))
    return F.when(begins_or_ends | (F.col("lost_before") > 0), of_row)


def last_words(transitions: DataFrame) -> DataFrame:
    """Per cluster: ``last_word``, the moment until which its controller is known to have had nothing more to report.

    That is its reported end; without one, its last event or `HEARD_US` after its last heartbeat. A cluster without a
    heartbeat of a controller has no row.
    """
    reported = transitions.where(F.col("node_id") == CONTROLLER_NODE_ID)
    is_beat = F.col("event_type") == "EXPORT_HEARTBEAT"
    is_end = is_beat & F.col("ext").getItem("final").eqNullSafe("true")
    words = reported.groupBy("cluster_id").agg(
        F.max("ts_wall_us").alias("_last"),
        F.max(F.when(is_beat, F.col("ts_wall_us"))).alias("_beat"),
        F.max(F.when(is_end, F.col("ts_wall_us"))).alias("_end"),
    )
    heard = F.greatest(F.col("_last"), F.col("_beat") + HEARD_US)
    last_word = F.when(F.col("_end") >= F.col("_last"), F.col("_end")).otherwise(heard)
    return words.where("_beat IS NOT NULL").select("cluster_id", last_word.alias("last_word"))


def control_states(rows: DataFrame, words: DataFrame) -> DataFrame:
    """Step functions: one row per key and interval [t0, t1) with the whole state in it.

    If nothing came after, ``t1`` is the controller's last word (``words``, from `last_words`), and at the latest the
    end of the hour: the next one begins with a snapshot, which then is missing. ``known`` is false before a hole in the
    partition epochs, and until every part of the state was reported: data that begin with a change of the ISR do not
    show the leader. ``is_isr_read``: at ``t0`` no transition was missing since the ISR was reported; one may be missing
    after it. ``min_isr`` is the effective one, min(RF, min.insync.replicas). ``leader`` is null if there is none.
    ``replicas`` are the original ones while a reassignment runs, as KIP-455 counts them: the added ones are not
    expected yet. A state that lasted no time is kept if it was the last of its partition epoch.
    """
    so_far = _order().rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def held(name: str) -> Column:
        return F.last(name, ignorenulls=True).over(so_far)

    following = F.lead("t").over(_order())
    original = F.when(F.col("is_moving") & (F.size("original_replicas") > 0), F.col("original_replicas"))
    rows = rows.withColumn("replicas", F.when(~F.col("is_moving"), F.col("replicas")).otherwise(original))
    # The parts of the state that a row of an unknown type changed are unknown from it on, but known before it.
    unseen = F.col("lost_before") - F.col("is_unread").cast("int")
    holes = F.sum((F.col("lost_before") > 0).cast("int")).over(so_far)
    isr_reported_at = F.last(F.when(F.col("new_isr").isNotNull(), F.col("_holes")), ignorenulls=True).over(so_far)
    reported_at = F.last(F.when(F.col("new_leader").isNotNull(), F.col("leader_epoch")), ignorenulls=True).over(so_far)
    rows = rows.join(F.broadcast(words), "cluster_id", "left")
    states = rows.withColumn("_holes", holes).select(
        *PARTITION_KEY,
        "topic",
        F.col("t").alias("t0"),
        F.coalesce(following, _heard_until()).alias("t1"),
        "partition_epoch",
        held("leader_epoch").alias("leader_epoch"),
        held("new_leader").alias("_leader"),
        held("new_isr").alias("isr"),
        held("elr").alias("elr"),
        held("replicas").alias("replicas"),
        held("min_isr").alias("_min_isr"),
        held("lag_time_max_ms").alias("lag_time_max_ms"),
        F.coalesce(held("topic_deleted"), F.lit(False)).alias("is_deleted"),
        (F.coalesce(F.lead(unseen).over(_order()), F.lit(0)) == 0).alias("_whole"),
        (F.lead("partition_epoch").over(_order()) == F.col("partition_epoch")).alias("_goes_on"),
        reported_at.alias("_reported_at"),
        F.coalesce(isr_reported_at == F.col("_holes"), F.lit(False)).alias("is_isr_read"),
    )
    rf = F.when(F.col("replicas").isNotNull(), F.size("replicas"))
    # After a hole the ISR must be reported again, and the earlier leader still counts only in the same leader
    # epoch.
    reported = F.coalesce((F.col("leader_epoch") == F.col("_reported_at")) & F.col("is_isr_read"), F.lit(False))
    return (
        states.where("NOT is_deleted AND (t1 > t0 OR NOT coalesce(_goes_on, false))")
        .withColumn("known", F.col("_whole") & reported & rf.isNotNull() & F.col("_min_isr").isNotNull())
        .withColumn("leader", F.when(F.col("_leader") != NO_LEADER, F.col("_leader")))
        .withColumn("rf", rf)
        .withColumn("min_isr", F.least(rf, F.col("_min_isr")))
        .withColumn("isr_size", F.size("isr"))
        .drop("_leader", "_min_isr", "is_deleted", "_whole", "_goes_on", "_reported_at")
    )


def terms(rows: DataFrame) -> DataFrame:
    """When each leader epoch was in force: [commit of e, commit of e+1), by the controller's corrected time.

    The last one ends with the deletion of its topic, if it was deleted. ``is_start_reported``: the controller's first
    report of the epoch is the change that began it; otherwise it began earlier, by a change that was lost.
    """
    leads = F.when(F.col("new_leader") != NO_LEADER, F.col("new_leader"))
    begun = rows.where("leader_epoch IS NOT NULL AND NOT coalesce(topic_deleted, false)").groupBy(
        *PARTITION_KEY, "leader_epoch"
    )
    changed = F.min(F.when(F.col("event_type") == "LEADER_CHANGE", F.col("t")))
    spans = begun.agg(
        F.min("t").alias("term_start"),
        F.max(leads).alias("term_leader"),
        F.coalesce(changed == F.min("t"), F.lit(False)).alias("is_start_reported"),
    )
    deleted = rows.where("topic_deleted").groupBy(*PARTITION_KEY).agg(F.min("t").alias("_deleted"))
    order = Window.partitionBy(*PARTITION_KEY).orderBy("leader_epoch")
    end = F.coalesce(F.lead("term_start").over(order), F.col("_deleted"), F.lit(FOREVER_US))
    return spans.join(deleted, list(PARTITION_KEY), "left").withColumn("term_end", end).drop("_deleted")


def _heard_until() -> Column:
    """The moment up to which the state of a row is known if no other row of its partition follows."""
    hour_end = F.col("t") - F.pmod("t", F.lit(HOUR_US)) + HOUR_US
    return F.greatest("t", F.least(hour_end, F.col("last_word")))


def _order() -> WindowSpec:
    return Window.partitionBy(*PARTITION_KEY).orderBy("partition_epoch", "meta_offset", "ts_wall_us", "seq")
