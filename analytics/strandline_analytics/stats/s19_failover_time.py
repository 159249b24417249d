"""S19: what a failover cost, in its three phases.

Detect: last heartbeat -> fence of the old leader. Elect: fence -> commit of the new leader. Both by the controller's
clock. Activate: commit -> EPOCH_START by the new leader's clock, corrected. A controlled shutdown has nothing to
detect; a preferred election has neither of the first two. Where no replica could be elected at once, the election lasts
until one was. A failover belongs to the window of its commit; a start at or after the end of it is out.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.stats.durations import nearest_rank
from strandline_analytics.stats.s11_unavailability import activations
from strandline_analytics.stats.s16_shrink_and_leader import leader_changes
from strandline_analytics.timeline.inferred import NEAR_US


def failovers(silver: Silver) -> DataFrame:
    """One row per change to a leader: key, topic, t (commit), old_leader, new_leader, election_type, cause of the
    fence, detect_us, elect_us, activate_us (nulls where a phase does not apply or was not seen), clock_err_us."""
    changes = _after_whom(leader_changes(silver)).where("new_leader >= 0")
    fences = (
        silver.of_type("NODE_SESSION")
        .where("phase = 'fence'")
        .select(
            "cluster_id",
            F.col("subject_node_id").alias("_node"),
            F.col("ts_wall_us").alias("_fenced"),
            F.col("cause").alias("_cause"),
            "last_heartbeat_us",
        )
    )
    away = F.col("_lost_at") - F.col("_fenced")
    # The fence and its elections are one decision: they may bear the same time, and be written in either order.
    fits = (F.col("_node") == F.col("_lost")) & (away >= 0) & (away <= NEAR_US)
    seen = F.when(fits, F.struct("_fenced", "_cause", "last_heartbeat_us"))
    pairs = changes.join(fences, ["cluster_id"], "left")
    rows = pairs.groupBy(*changes.columns).agg(F.max(seen).alias("_fence"))
    begun = activations(silver).select(
        *PARTITION_KEY, F.col("leader_epoch").alias("new_leader_epoch"), "t1", "clock_err_us"
    )
    rows = rows.join(begun, [*PARTITION_KEY, "new_leader_epoch"], "left")
    return rows.select(
        *changes.drop("_lost", "_lost_at").columns,
        F.col("_fence._cause").alias("fence_cause"),
        F.when(
            F.col("_fence._cause") != "controlled_shutdown", F.col("_fence._fenced") - F.col("_fence.last_heartbeat_us")
        ).alias("detect_us"),
        (F.col("t") - F.col("_fence._fenced")).alias("elect_us"),
        (F.col("t1") - F.col("t")).alias("activate_us"),
        "clock_err_us",
    )


def _after_whom(changes: DataFrame) -> DataFrame:
    """Add ``_lost`` and ``_lost_at``: the last leader before, and when it was taken away; perhaps some changes ago."""
    order = Window.partitionBy(*PARTITION_KEY).orderBy("partition_epoch")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    lost = F.when(F.col("old_leader") >= 0, F.struct(F.col("old_leader").alias("node"), F.col("t").alias("at")))
    rows = changes.withColumn("_gone", F.last(lost, ignorenulls=True).over(so_far))
    return rows.withColumns({"_lost": F.col("_gone.node"), "_lost_at": F.col("_gone.at")}).drop("_gone")


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Phases of the failovers of a window."""
    rows = scope.place(failovers(silver))
    activated = F.col("t") + F.col("activate_us") < F.col("window_end")
    rows = rows.withColumn("activate_us", F.when(activated, F.col("activate_us")))
    total = F.col("detect_us") + F.col("elect_us") + F.col("activate_us")
    return rows.groupBy(*scope.columns).agg(
        F.count("*").alias("leader_changes"),
        F.count_if(F.col("elect_us").isNotNull()).alias("failovers"),
        *nearest_rank(F.col("detect_us"), {"detect_p50_us": 50}),
        F.max("detect_us").alias("detect_max_us"),
        *nearest_rank(F.col("elect_us"), {"elect_p50_us": 50}),
        F.max("elect_us").alias("elect_max_us"),
        *nearest_rank(F.col("activate_us"), {"activate_p50_us": 50}),
        F.max("activate_us").alias("activate_max_us"),
        F.max(total).alias("total_max_us"),
        F.count_if(F.col("activate_us") < 0).alias("n_negative"),
        F.max("clock_err_us").alias("clock_err_us"),
    )


STATISTIC = Statistic(
    id="s19",
    name="failover_time",
    title="Failover time",
    headline="total_max_us",
    values=(
        Value("leader_changes", "bigint", "changes", "changes to a leader", counts=True),
        Value("failovers", "bigint", "changes", "of them after a fence of the old leader", counts=True),
        Value("detect_p50_us", "bigint", "us", "last heartbeat -> fence, median"),
        Value("detect_max_us", "bigint", "us", "last heartbeat -> fence, longest"),
        Value("elect_p50_us", "bigint", "us", "fence -> commit of the new leader, median"),
        Value("elect_max_us", "bigint", "us", "fence -> commit of the new leader, longest"),
        Value("activate_p50_us", "bigint", "us", "commit -> start of the epoch, median; two clocks"),
        Value("activate_max_us", "bigint", "us", "commit -> start of the epoch, longest; two clocks"),
        Value("total_max_us", "bigint", "us", "all three phases, longest"),
        Value("n_negative", "bigint", "changes", "activations before their commit", counts=True),
        Value("clock_err_us", "bigint", "us", "largest error of the clocks' offsets"),
    ),
    compute=compute,
    needs_coverage=False,
)
