"""S7: how much was cut, and whether any of it was committed.

Per new epoch: the last known LEO of the epochs before it less its start offset, first by what was known before the
commit and then with what zombies appended after it. Per truncation: what the replica itself reported. A copy that is
cut while the record lives elsewhere is no loss; committed_lost counts records below an exposed HW that a leader lacked.

Of an epoch before which no HW was seen it is not known what it lost, and of a cut by a replica that did not know its
own HW not how much of it was committed. Both are counted; a sum that leaves them out is a lower bound, and null where
it would be 0.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.places import PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Sums over the epochs that started and the truncations that happened in a window."""
    by = list(scope.columns)
    epochs = (
        scope.place(_epoch_cuts(silver))
        .groupBy(*by)
        .agg(
            F.count("*").alias("epochs"),
            F.count_if(F.col("lost").isNull()).alias("epochs_unknown"),
            _at_least("tail").alias("tail_cut_records"),
            _at_least("tail_zombie").alias("tail_cut_with_zombies_records"),
            _at_least("lost").alias("committed_lost_records"),
        )
    )
    # Logs of another system do not always say from where was cut.
    cut = F.when(F.col("from_leo").isNotNull(), F.greatest(F.lit(0), F.col("from_leo") - F.col("to_leo")))
    cuts = silver.of_type("TRUNCATION").select(
        *PARTITION_KEY, "topic", "node_id", "committed_cut", F.col("ts_wall_us").alias("t"), cut.alias("cut")
    )
    cuts = in_controller_time(cuts, silver.clocks, "node_id", "t")
    cuts = (
        scope.place(cuts)
        .groupBy(*by)
        .agg(
            F.count("*").alias("truncations"),
            _at_least("cut").alias("truncated_records"),
            F.max("cut").alias("truncated_max_records"),
            F.count_if(F.col("committed_cut").isNull()).alias("own_hw_unknown"),
            _at_least("committed_cut").alias("committed_cut_records"),
        )
    )
    return epochs.join(cuts, by, "full")


def _at_least(name: str) -> Column:
    """The sum of what is known; null where that is 0 and something is not known, for then nothing is said by it."""
    total = F.sum(name)
    return F.when((total > 0) | (F.count(name) == F.count("*")), total)


def _epoch_cuts(silver: Silver) -> DataFrame:
    """One row per EPOCH_START: key, topic, t, and ``tail``, ``tail_zombie``, ``lost``; null where nothing was known."""
    began = silver.epoch_starts.select(
        *PARTITION_KEY, "leader_epoch", "topic", F.col("began_us").alias("t"), F.col("start_offset").alias("start")
    )
    own = silver.looks.where("is_leader AND NOT is_double").groupBy(PLACE, "leader_epoch")
    ends = own.agg(
        F.max(F.when(~F.col("is_zombie"), F.col("leader_leo"))).alias("leo"),
        F.max("leader_leo").alias("leo_zombie"),
        F.max(F.when(~F.col("is_zombie"), F.col("hw"))).alias("hw"),
    )
    ends = ends.join(F.broadcast(silver.places), PLACE).drop(PLACE, "topic")
    created = silver.control_rows.where("event_type = 'LEADER_CHANGE' AND reason = 'created'").select(
        *PARTITION_KEY, F.col("new_leader_epoch").alias("leader_epoch"), F.lit(True).alias("is_first")
    )
    began = began.join(created.distinct(), [*PARTITION_KEY, "leader_epoch"], "left")
    epochs = began.join(ends, [*PARTITION_KEY, "leader_epoch"], "full")
    seen = F.struct("leader_epoch", "t", "topic", "start", "is_first", "leo", "leo_zombie", "hw")
    seen = F.array_sort(F.collect_list(seen))
    rows = epochs.groupBy(*PARTITION_KEY).agg(seen.alias("_seen"))
    return rows.select(*PARTITION_KEY, F.explode(F.expr(_CUTS)).alias("_cut")).select(*PARTITION_KEY, "_cut.*")


# A fold over the epochs of a partition, in order. What an epoch lost is gone, and the next is measured by what was
# left: the HW that it inherits is cut to the start of every epoch in between. An epoch that nobody looked at had at
# least the log that it started with. Before the first epoch of a new topic there was nothing.
_CUTS = """
    aggregate(
      _seen,
      struct(cast(null as bigint) as leo, cast(null as bigint) as leo_zombie, cast(null as bigint) as hw,
             cast(array() as array<struct<topic: string, t: bigint, tail: bigint, tail_zombie: bigint, lost: bigint>>)
               as cuts),
      (before, e) -> struct(
        coalesce(e.leo, e.start, before.leo) as leo,
        coalesce(e.leo_zombie, e.start, before.leo_zombie) as leo_zombie,
        greatest(e.hw, if(before.hw is null, null, least(before.hw, coalesce(e.start, before.hw)))) as hw,
        if(e.start is null, before.cuts, concat(before.cuts, array(struct(
          e.topic as topic,
          e.t as t,
          if(before.leo is null, if(e.is_first, 0L, null), greatest(0L, before.leo - e.start)) as tail,
          if(before.leo_zombie is null, if(e.is_first, 0L, null), greatest(0L, before.leo_zombie - e.start))
            as tail_zombie,
          if(before.hw is null, if(e.is_first, 0L, null), greatest(0L, before.hw - e.start)) as lost)))) as cuts),
      folded -> folded.cuts)
"""


STATISTIC = Statistic(
    id="s07",
    name="actual_cut",
    title="What was cut",
    headline="truncated_records",
    values=(
        Value("epochs", "bigint", "epochs", "leader epochs that started", counts=True),
        Value(
            "epochs_unknown",
            "bigint",
            "epochs",
            "of them those before which no HW was seen: the losses are lower bounds",
            counts=True,
        ),
        Value("tail_cut_records", "bigint", "records", "last LEO known of the epoch before - start offset"),
        Value("tail_cut_with_zombies_records", "bigint", "records", "the same with what zombies appended"),
        Value("committed_lost_records", "bigint", "records", "below an HW seen before, and not on the new leader"),
        Value("truncations", "bigint", "truncations", "times a replica cut its log", counts=True),
        Value("truncated_records", "bigint", "records", "records cut, over all copies", counts=True),
        Value("truncated_max_records", "bigint", "records", "largest single cut"),
        Value(
            "own_hw_unknown",
            "bigint",
            "truncations",
            "of them those by a replica that did not know its own HW",
            counts=True,
        ),
        Value(
            "committed_cut_records",
            "bigint",
            "records",
            "cut below the replica's own HW: must be 0; a lower bound if own_hw_unknown is above 0",
            counts=True,
            over="truncations",
        ),
    ),
    compute=compute,
    reads_samples=True,
    needs_coverage=False,
)
