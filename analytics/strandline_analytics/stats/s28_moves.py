"""S28: moves of replicas: how long they waited for their turn and ran, what they copied, and what held them up.

A move is a reassignment of a partition, from its first target to the step that ends it; a later target that replaces
one is part of it. What was copied is what leaders report to have sent to the replicas that it adds, each report for ten
seconds, so that records of just after its end may be in it. For how long the throttle held copies back is in the same
reports, and in those of the replicas themselves.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.events import IDENTITY
from strandline_analytics.silver.groups import heard_until
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import nearest_rank

_KEY = list(PARTITION_KEY)
_ENDS = "phase IN ('completed', 'cancelled')"


def moves(silver: Silver) -> DataFrame:
    """One row per move: key, topic, [t0, t1), started_us (null: only queued), outcome (null: no end was seen),
    is_begin_seen, adding (every replica that it added at some time), and its partition epochs first and last."""
    return silver.plan(("moves",), lambda: _moves(silver))


def _moves(silver: Silver) -> DataFrame:
    order = Window.partitionBy(*_KEY).orderBy("partition_epoch", "meta_offset", "seq")
    rows = silver.control_rows.where("event_type = 'REASSIGNMENT'")
    rows = rows.withColumn("_ends", F.expr(_ENDS))
    rows = rows.withColumn("_begins", F.coalesce(F.lag("_ends").over(order), F.lit(True)))
    rows = rows.withColumn("_move", F.sum(F.col("_begins").cast("int")).over(order))
    found = rows.groupBy(*_KEY, "topic", "_move").agg(
        F.min("t").alias("t0"),
        F.min(F.when(F.col("phase") == "started", F.col("t"))).alias("started_us"),
        F.max(F.when(F.col("_ends"), F.col("t"))).alias("_ended_us"),
        F.max(F.when(F.col("_ends"), F.col("phase"))).alias("outcome"),
        F.bool_or(~F.col("_ends")).alias("is_begin_seen"),
        F.array_distinct(F.flatten(F.collect_list("adding_replicas"))).alias("adding"),
        F.min("partition_epoch").alias("first"),
        F.max("partition_epoch").alias("last"),
    )
    found = found.join(F.broadcast(heard_until(silver).drop("topic")), _KEY, "left")
    return found.withColumn("t1", F.coalesce("_ended_us", F.greatest("heard_us", "t0"))).drop("_ended_us", "heard_us")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per group: moves by how they ended, their times, what was copied, and who was waited for."""
    by, found = list(scope.columns), moves(silver)
    ran = scope.clip(found).groupBy(*by).agg(*_times())
    length = F.when(F.col("is_begin_seen") & (F.col("outcome") == "completed"), F.col("t1") - F.col("t0"))
    ended = scope.place(found.where("outcome IS NOT NULL"), "t1")
    ends = ended.groupBy(*by).agg(
        F.count_if(F.col("outcome") == "completed").alias("completed"),
        F.count_if(F.col("outcome") == "cancelled").alias("cancelled"),
        *nearest_rank(length, {"p50_us": 50, "p95_us": 95}),
        F.max(length).alias("max_us"),
    )
    rows = ran.join(ends, by, "full")
    copied = (
        scope.place(_copied(silver, found), "ts_wall_us")
        .groupBy(*by)
        .agg(F.sum("bytes").alias("copied_bytes"), (F.sum("throttled_ms") * 1_000).alias("throttled_us"))
    )
    last = scope.place(_last_to_join(silver, found.where("outcome = 'completed'")), "t1")
    turns = scope.place(_turns(silver))
    for figures in (copied, _by_node(last, by, "waited_for"), _by_node(turns, by, "queued_for")):
        rows = rows.join(figures, by, "full")
    return rows


def _times() -> tuple[Column, ...]:
    """What lies in a window: before and after the start, and whether it goes on at the window's end, which is out."""
    begun = F.least("t1", F.coalesce("started_us", "t1"))
    queued = F.greatest(begun - F.col("t0"), F.lit(0))
    ends = F.col("outcome").isNotNull() & ~F.col("cut_end") & (F.col("t1") < F.col("window_end"))
    return (
        F.count_if(~ends).alias("unfinished"),
        F.sum(queued).alias("queued_us"),
        F.sum(F.col("t1") - F.col("t0") - queued).alias("running_us"),
    )


def _copied(silver: Silver, found: DataFrame) -> DataFrame:
    """Reports of fetches by replicas that a move adds, whose interval overlaps its run, each once."""
    rows = silver.written_samples("FETCH_STATS").where("partition IS NOT NULL").dropDuplicates(list(IDENTITY))
    rows = rows.select(*_KEY, "node_id", "replica_id", "ts_wall_us", "interval_ms", "bytes", "throttled_ms")
    rows = in_controller_time(rows, silver.clocks, "node_id", "ts_wall_us")
    runs = found.where("started_us IS NOT NULL").select(*_KEY, "topic", "adding", "started_us", "t1")
    rows = rows.withColumn("_from", F.col("ts_wall_us") - F.col("interval_ms") * 1_000)
    pairs = rows.join(F.broadcast(runs), _KEY)
    pairs = pairs.where("array_contains(adding, replica_id) AND ts_wall_us > started_us AND _from < t1")
    # Two moves that follow within one interval have a report in common.
    return pairs.dropDuplicates([*_KEY, "node_id", "replica_id", "ts_wall_us"])


def _last_to_join(silver: Silver, completed: DataFrame) -> DataFrame:
    """Completed moves, each with the ``node`` whose replica was the last to join the ISR, of several the greatest."""
    joins = silver.control_rows.where("event_type = 'ISR_CHANGE'").select(
        *_KEY, "partition_epoch", F.explode(F.array_except("new_isr", "old_isr")).alias("node")
    )
    pairs = completed.join(joins, _KEY).where(
        "array_contains(adding, node) AND partition_epoch > first AND partition_epoch <= last"
    )
    return pairs.groupBy(*completed.drop("adding").columns).agg(
        F.max_by("node", F.struct("partition_epoch", "node")).alias("node")
    )


def _turns(silver: Silver) -> DataFrame:
    """Queued moves that the end of another one on ``node`` let start: both are in one step of the controller."""
    order = Window.partitionBy(*_KEY).orderBy("partition_epoch", "meta_offset", "seq")
    rows = silver.control_rows.where("event_type = 'REASSIGNMENT'")
    rows = rows.withColumn("_was", F.lag("phase").over(order))
    ends = rows.where(_ENDS).select(
        "cluster_id", "meta_offset", F.col("adding_replicas").alias("_added"), F.col("removing_replicas").alias("_gone")
    )
    begun = rows.where("phase = 'started' AND _was = 'queued'").join(ends, ["cluster_id", "meta_offset"])
    shared = F.array_union(
        F.array_intersect("adding_replicas", "_added"), F.array_intersect("removing_replicas", "_gone")
    )
    return begun.select(*_KEY, "topic", "partition_epoch", "t", F.explode(shared).alias("node")).distinct()


def _by_node(rows: DataFrame, by: list[str], name: str) -> DataFrame:
    counted = rows.groupBy(*by, "node").agg(F.count("*").alias("_n"))
    return counted.groupBy(*by).agg(
        F.map_from_entries(F.sort_array(F.collect_list(F.struct("node", "_n")))).alias(name)
    )


STATISTIC = Statistic(
    id="s28",
    name="moves",
    title="Moves of replicas",
    headline="running_us",
    values=(
        Value("completed", "bigint", "moves", "moves that completed in the window", counts=True),
        Value("cancelled", "bigint", "moves", "moves that were cancelled in the window", counts=True),
        Value(
            "unfinished", "bigint", "moves", "queued or running at the end of the window, or of unknown end",
            counts=True,
        ),
        Value("queued_us", "bigint", "us", "time in the window in which they waited for their turn", counts=True),
        Value("running_us", "bigint", "us", "time in the window in which they ran", counts=True),
        Value("p50_us", "bigint", "us", "median of the time from the first target to completion, nearest rank"),
        Value("p95_us", "bigint", "us", "95th percentile, nearest rank"),
        Value("max_us", "bigint", "us", "longest"),
        Value(
            "copied_bytes", "bigint", "bytes", "sent to the replicas that they add, by the leaders' reports",
            counts=True, over="running_us",
        ),
        Value(
            "throttled_us", "bigint", "us", "for which the throttle held copies back, the sum of all replicas",
            counts=True, over="running_us",
        ),
        Value("waited_for", "map<int,bigint>", "moves", "node -> completed moves whose last replica to join was on it"),
        Value("queued_for", "map<int,bigint>", "moves", "node -> moves whose turn came when another one on it ended"),
    ),
    compute=compute,
    needs_coverage=False,
    reads_samples=True,
)  # fmt: skip
