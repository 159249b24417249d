"""Orders events, and corrects their times, if several clocks wrote them.

Within a partition, the controller's rows are in the order of partition epochs; a row of a node comes after the newest
decision that its writer knew (its own partition epoch, or the first one of its leader epoch) and, among the rows of
that writer, by incarnation and seq. The wall clock decides only between nodes that knew the same decision.

``t`` is a row's time by the controller's clock: the measured offset is subtracted, it does not go back along a writer's
sequence, and it is not before the decision that the row knows of. ``ts_wall_us`` stays as written.

Invariant: sorting by (``merge_us``, partition, ``ordinal``) never swaps two rows of one partition.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, functions as F

from strandline.export.schema import COLUMNS, CONTROLLER_NODE_ID, EVENT_TYPES, REPEATED
from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.control import AT_ONCE, CONTROL_TYPES
from strandline_analytics.silver.events import IDENTITY
from strandline_analytics.silver.tables import Silver
from strandline_analytics.timeline.event import QUIET_TYPES, TELLING_DECISIONS, Event, Selection, events_from

COMPUTED = ("ordinal", "merge_us", "t", "anchor_epoch", "plane", "clock_err_us", "clock_offset_us")
"""The columns of a timeline besides those of the export."""

_NAMES = tuple(column.name for column in COLUMNS)
_PLACING = (
    *PARTITION_KEY, "topic", "event_type", "node_id", "incarnation", "seq", "ts_wall_us", "leader_epoch",
    "partition_epoch", "meta_offset",
)  # fmt: skip
"""The columns that determine the order."""
_CARRIED = "_event"
"""All other columns, packed into one while rows are ordered: in each of a dozen steps Spark examines every column."""


def timeline(silver: Silver, selection: Selection) -> DataFrame:
    """The selected events in logical order, with the columns of the export and `COMPUTED`.

    ``ordinal`` counts the events of a partition from 1; ``plane`` is control, data or node; ``clock_err_us`` is null
    if the writer's clock was never measured, and 0 for the controller itself; ``clock_offset_us`` is the offset that
    was subtracted from that clock's time.
    """
    rows = _of_keys(_rows(silver, selection), selection)
    corrected = in_controller_time(_with_shifted(rows), silver.clocks, "node_id", "_shifted")
    ordered = _ordered(corrected)
    return (
        ordered.where(_wanted(selection))
        .select(*COMPUTED, *(_column(name).alias(name) for name in _NAMES))
        .orderBy("merge_us", F.col("topic").asc_nulls_first(), F.col("partition").asc_nulls_first(), "ordinal")
    )


def events(silver: Silver, selection: Selection) -> list[Event]:
    """The selected events in logical order, collected from Spark."""
    return events_from([row.asDict(recursive=True) for row in timeline(silver, selection).collect()])


def _rows(silver: Silver, selection: Selection) -> DataFrame:
    others = F.struct(*(name for name in _NAMES if name not in _PLACING)).alias(_CARRIED)
    rows = silver.transitions.select(*_PLACING, others)
    if selection.sample_types:
        samples = silver.written_samples(*selection.sample_types).select(*_PLACING, others)
        # Adding the partition's key changes no result, and avoids a shuffle of rows that are already grouped by it.
        rows = rows.unionByName(samples.dropDuplicates([*PARTITION_KEY, *IDENTITY]))
    return rows


def _column(name: str) -> Column:
    """A column of the export, while rows are being ordered."""
    return F.col(name if name in _PLACING else f"{_CARRIED}.{name}")


def _of_keys(rows: DataFrame, selection: Selection) -> DataFrame:
    if selection.cluster_id is not None:
        rows = rows.where(F.col("cluster_id") == selection.cluster_id)
    of_node = F.col("partition").isNull()
    if selection.topics:
        # Operations on other topics do not concern partitions of these.
        elsewhere = (_column("resource_type") == "topic") & ~_column("resource_name").isin(*selection.topics)
        rows = rows.where((of_node & ~F.coalesce(elsewhere, F.lit(False))) | F.col("topic").isin(*selection.topics))
    if selection.partitions:
        rows = rows.where(of_node | F.col("partition").isin(*selection.partitions))
    return rows if selection.node_events else rows.where(~of_node)


def _with_shifted(rows: DataFrame) -> DataFrame:
    """Add ``plane`` and ``_shifted``: the time as written, not yet corrected; rows of one decision happen at once."""
    by_controller = F.col("node_id") == CONTROLLER_NODE_ID
    control = by_controller & F.col("event_type").isin(*CONTROL_TYPES) & F.col("partition").isNotNull()
    plane = F.when(control, "control").when(F.col("partition").isNotNull(), "data").otherwise(F.lit("node"))
    decides = control & F.col("event_type").isin(*AT_ONCE)
    decision = Window.partitionBy(*PARTITION_KEY, "node_id", "partition_epoch", "_decides")
    at = F.when(F.col("_decides"), F.min("ts_wall_us").over(decision)).otherwise(F.col("ts_wall_us"))
    return rows.withColumns({"plane": plane, "_decides": decides}).withColumn("_shifted", at).drop("_decides")


def _ordered(rows: DataFrame) -> DataFrame:
    control = F.col("plane") == "control"

    def of_control(name: str, otherwise: Column) -> Column:
        return F.when(control, F.col(name)).otherwise(otherwise)

    own = Window.partitionBy(*PARTITION_KEY, "node_id", "plane").orderBy(
        of_control("partition_epoch", F.col("incarnation")), of_control("meta_offset", F.lit(0)), "seq"
    )
    own = own.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    of_term = Window.partitionBy(*PARTITION_KEY, "leader_epoch")
    known = F.greatest(
        F.max("partition_epoch").over(own), F.min(F.when(control, F.col("partition_epoch"))).over(of_term)
    )
    rows = rows.withColumns({"_own_us": F.max("_shifted").over(own), "anchor_epoch": known})
    decided = F.min(F.when(control, F.col("_own_us"))).over(Window.partitionBy(*PARTITION_KEY, "anchor_epoch"))
    rows = rows.withColumn("t", F.greatest("_own_us", F.when(F.col("plane") == "data", decided)))

    def of_writer(measured: Column) -> Column:
        return F.when(F.col("node_id") == CONTROLLER_NODE_ID, F.lit(0).cast("bigint")).otherwise(measured)

    logical = Window.partitionBy(*PARTITION_KEY).orderBy(
        F.col("anchor_epoch").asc_nulls_first(), "plane", "t", "node_id", "incarnation", "seq"
    )
    so_far = logical.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return rows.withColumns(
        {
            "ordinal": F.row_number().over(logical),
            "merge_us": F.max("t").over(so_far),
            "clock_err_us": of_writer(F.col("clock_err_us")),
            "clock_offset_us": of_writer(F.col("ts_wall_us") - F.col("_shifted")),
        }
    )


def _wanted(selection: Selection) -> Column:
    wanted = F.lit(True)
    if selection.types:
        named = F.col("event_type").isin(*selection.types, *selection.sample_types)
        wanted = wanted & (named | ~F.col("event_type").isin(*EVENT_TYPES) if selection.unknown_types else named)
    else:
        telling = F.coalesce(_column("decision").isin(*TELLING_DECISIONS), F.lit(False))
        wanted = wanted & (~F.col("event_type").isin(*QUIET_TYPES) | telling)
        refused = (F.col("event_type") == "AUDIT") & _column("outcome").eqNullSafe("REFUSED")
        wanted = wanted & ~_column("cause").eqNullSafe(REPEATED) & ~refused
    if selection.start_us is not None:
        wanted = wanted & (F.col("t") >= selection.start_us)
    if selection.end_us is not None:
        wanted = wanted & (F.col("t") < selection.end_us)
    if selection.nodes:
        wanted = wanted & _about(selection.nodes)
    return wanted


def _about(nodes: tuple[int, ...]) -> Column:
    """Whether one of the nodes wrote the event, is its subject, or entered or left the ISR or the leadership by it."""
    named = F.array(*map(_column, ("node_id", "subject_node_id", "replica_id", "old_leader", "new_leader")))
    old, new = _column("old_isr"), _column("new_isr")
    came_or_went = F.array_union(F.array_except(old, new), F.array_except(new, old))
    asked = F.array(*(F.lit(node) for node in nodes))
    return F.coalesce(F.arrays_overlap(named, asked), F.lit(False)) | (
        (F.col("event_type") == "ISR_CHANGE") & F.coalesce(F.arrays_overlap(came_or_went, asked), F.lit(False))
    )
