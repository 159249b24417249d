"""S7: how much was cut, and whether any of it was committed.

Per new epoch: the last known LEO of the epochs before it less its start offset, first by what was known before the
commit and then with what zombies appended after it. Per truncation: what the replica itself reported. A copy that is
cut while the record lives elsewhere is no loss; committed_lost counts records below an exposed HW that a leader lacked.

The size of what was lost has two bounds: the nearest positions of which looks at that epoch had the bytes. What an
unclean election lost was avoidable as far as leaders had seen it on another replica that the controller had as live.

Of an epoch before which no HW was seen it is not known what it lost, and of a cut by a replica that did not know its
own HW not how much of it was committed. Both are counted; a sum that leaves them out is a lower bound, and null where
it would be 0. A part of what such an epoch lost is proved by a replica that cut its log to where the epoch starts, and
knew a higher HW.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, functions as F

from strandline.export.schema import CONTROLLER_NODE_ID
from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.kept import PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Sums over the epochs that started and the truncations that happened in a window."""
    by = list(scope.columns)
    epochs = (
        scope.place(epoch_cuts(silver))
        .groupBy(*by)
        .agg(
            F.count("*").alias("epochs"),
            F.count_if(~F.col("is_measured")).alias("epochs_unknown"),
            _at_least("tail").alias("tail_cut_records"),
            _at_least("tail_zombie").alias("tail_cut_with_zombies_records"),
            _at_least("lost").alias("committed_lost_records"),
            _at_least("least_bytes").alias("committed_lost_min_bytes"),
            F.when(F.count("most_bytes") == F.count("*"), F.sum("most_bytes")).alias("committed_lost_max_bytes"),
            _at_least("avoidable").alias("avoidable_lost_records"),
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


def epoch_cuts(silver: Silver) -> DataFrame:
    """One row per EPOCH_START: key, topic, t, and ``tail``, ``tail_zombie``, ``lost``, ``least_bytes``, ``most_bytes``,
    ``avoidable``; null where nothing was known. Not ``is_measured``: ``lost`` is null or a lower bound, because no
    leader's HW was seen before. Planned once for all scopes that are asked about."""
    return silver.plan(("epoch cuts",), lambda: _epoch_cuts(silver))


def _epoch_cuts(silver: Silver) -> DataFrame:
    ends = _ends(silver).join(F.broadcast(silver.places), PLACE).drop(PLACE, "topic")
    epoch = [*PARTITION_KEY, "leader_epoch"]
    began = silver.epoch_starts.join(_elections(silver), epoch, "left").join(_proved(silver), epoch, "left")
    epochs = began.join(ends, epoch, "full")
    seen = F.array_sort(F.collect_list(F.struct(*_SEEN)))
    rows = epochs.groupBy(*PARTITION_KEY).agg(seen.alias("_seen"))
    return rows.select(*PARTITION_KEY, F.inline(F.expr(_CUTS)))


_SEEN = (
    "leader_epoch", "began_us", "topic", "start_offset", "is_first", "is_unclean", "leader", "live",
    "leo", "leo_zombie", "hw", "least_bytes", "most_bytes", "reached", "proved_hw",
)  # fmt: skip
"""What is known of an epoch: how it began, and how far its leader's looks had come."""


def _ends(silver: Silver) -> DataFrame:
    """One row per epoch that was looked at: how far log, HW and replicas (``reached``) had come at its end.

    ``least_bytes`` and ``most_bytes`` bound what lies between its highest HW and the offset at which the next epoch
    started, by the nearest positions on both sides of that offset of which a look had the bytes.
    """
    own = F.col("is_leader") & ~F.col("is_zombie")
    above = F.least(_bytes_at("leader_leo", "leo", ">="), _bytes_at("hw", "hw", ">="))
    below = F.greatest(_bytes_at("leader_leo", "leo", "<="), _bytes_at("hw", "hw", "<="))
    # Single numbers alone: an aggregate over structs would sort all looks.
    looks = silver.looks.where("NOT is_double").groupBy(PLACE, "leader_epoch", "replica_id")
    replicas = looks.agg(
        F.max(F.when(own, F.col("leader_leo"))).alias("leo"),
        F.max(F.when(F.col("is_leader"), F.col("leader_leo"))).alias("leo_zombie"),
        F.max(F.when(own, F.col("hw"))).alias("hw"),
        F.max(F.when(own & F.col("hw_bytes").isNotNull(), F.col("hw"))).alias("_sized_hw"),
        F.max(F.when(own, F.col("hw_bytes"))).alias("_hw_bytes"),
        F.min(F.when(own, above)).alias("_above"),
        F.max(F.when(own, below)).alias("_below"),
        F.max_by("leo", F.when(~F.col("is_zombie") & F.col("leo").isNotNull(), F.col("t1"))).alias("reached"),
    )
    hw_bytes = F.when(F.max("_sized_hw") == F.max("hw"), F.max("_hw_bytes"))
    reached = F.when(F.col("reached").isNotNull(), F.struct("replica_id", "reached"))
    return replicas.groupBy(PLACE, "leader_epoch").agg(
        *(F.max(name).alias(name) for name in ("leo", "leo_zombie", "hw")),
        (hw_bytes - F.min("_above")).alias("least_bytes"),
        (hw_bytes - F.max("_below")).alias("most_bytes"),
        F.collect_list(reached).alias("reached"),
    )


def _bytes_at(position: str, of: str, side: str) -> Column:
    """The bytes at a position of a look that lies on one side of where the next epoch starts."""
    is_there = F.col(position) >= F.col("next_start") if side == ">=" else F.col(position) <= F.col("next_start")
    return F.when(is_there, F.col(f"{of}_bytes"))


def _elections(silver: Silver) -> DataFrame:
    """Per epoch that a leader was elected for: whether it is the first one, whether the election was unclean, who leads
    and, of an unclean one, which nodes were live."""
    is_change = (F.col("event_type") == "LEADER_CHANGE") & F.col("partition").isNotNull() & (F.col("new_leader") >= 0)
    is_decision = (F.col("event_type") == "CONTROLLER_DECISION") & (F.col("decision") == "unclean_election")
    rows = silver.transitions.where((F.col("node_id") == CONTROLLER_NODE_ID) & (is_change | is_decision))
    # A decision and the changes that it led to are of one step, and have its place in the metadata log.
    step = Window.partitionBy("cluster_id", "incarnation", "meta_offset")
    live = F.when(F.col("meta_offset").isNotNull(), F.max(F.when(is_decision, F.col("live_set"))).over(step))
    rows = rows.select(
        *PARTITION_KEY,
        F.col("new_leader_epoch").alias("leader_epoch"),
        F.col("reason").eqNullSafe("created").alias("is_first"),
        F.col("election_type").eqNullSafe("unclean").alias("is_unclean"),
        F.col("new_leader").alias("leader"),
        live.alias("live"),
    )
    return rows.groupBy(*PARTITION_KEY, "leader_epoch").agg(
        *(F.max(name).alias(name) for name in ("is_first", "is_unclean", "leader", "live"))
    )


def _proved(silver: Silver) -> DataFrame:
    """Per epoch: ``proved_hw``, the highest HW of a replica that cut its log to where the epoch starts.

    A replica may return in a later epoch; of those that start at one offset the last is its.
    """
    cuts = (
        silver.of_type("TRUNCATION")
        .where("committed_cut > 0")
        .select(*PARTITION_KEY, F.col("leader_epoch").alias("_by"), F.col("to_leo").alias("start_offset"), "hw_before")
    )
    starts = silver.epoch_starts.select(*PARTITION_KEY, "leader_epoch", "start_offset")
    reached = starts.join(cuts, [*PARTITION_KEY, "start_offset"]).where("leader_epoch <= _by")
    last = reached.groupBy(*PARTITION_KEY, "start_offset", "_by").agg(
        F.max("leader_epoch").alias("leader_epoch"), F.max("hw_before").alias("hw_before")
    )
    return last.groupBy(*PARTITION_KEY, "leader_epoch").agg(F.max("hw_before").alias("proved_hw"))


# A fold over the epochs of a partition, in order. What an epoch lost is gone, and the next is measured by what was
# left: the HW that it inherits is cut to the start of every epoch in between, and so is how far a replica had come that
# it did not see. An epoch without a look had at least the log that it started with. Before the first epoch of a
# new topic there was nothing. Each leader counts bytes from a start of its own, so what is lost has a size only where
# the leader before had the highest HW. An election that was not reported may have been unclean.
_CUTS = """
    aggregate(
      _seen,
      struct(cast(null as bigint) as leo, cast(null as bigint) as leo_zombie, cast(null as bigint) as hw,
             cast(null as bigint) as own_hw, cast(null as bigint) as least_bytes, cast(null as bigint) as most_bytes,
             cast(array() as array<struct<replica_id: int, reached: bigint>>) as reached,
             cast(array() as array<struct<topic: string, t: bigint, tail: bigint, tail_zombie: bigint, lost: bigint,
                  least_bytes: bigint, most_bytes: bigint, avoidable: bigint, is_measured: boolean>>) as cuts),
      (before, e) -> struct(
        coalesce(e.leo, e.start_offset, before.leo) as leo,
        coalesce(e.leo_zombie, e.start_offset, before.leo_zombie) as leo_zombie,
        greatest(e.hw, if(before.hw is null, null, least(before.hw, coalesce(e.start_offset, before.hw)))) as hw,
        e.hw as own_hw,
        e.least_bytes as least_bytes,
        e.most_bytes as most_bytes,
        concat(
          transform(
            filter(before.reached,
                   x -> not exists(coalesce(e.reached, array()), y -> y.replica_id = x.replica_id)),
            x -> struct(x.replica_id as replica_id, least(x.reached, coalesce(e.start_offset, x.reached)) as reached)),
          coalesce(e.reached, array())) as reached,
        if(e.start_offset is null, before.cuts, concat(before.cuts, array(struct(
          e.topic as topic,
          e.began_us as t,
          if(before.leo is null, if(e.is_first, 0L, null), greatest(0L, before.leo - e.start_offset)) as tail,
          if(before.leo_zombie is null, if(e.is_first, 0L, null), greatest(0L, before.leo_zombie - e.start_offset))
            as tail_zombie,
          if(before.hw is null, if(e.is_first, 0L, e.proved_hw - e.start_offset),
             greatest(0L, before.hw - e.start_offset)) as lost,
          if(before.hw is null, if(e.is_first, 0L, null),
             if(before.hw <= e.start_offset, 0L, if(before.hw = before.own_hw, before.least_bytes, null)))
            as least_bytes,
          if(before.hw is null, if(e.is_first, 0L, null),
             if(before.hw <= e.start_offset, 0L, if(before.hw = before.own_hw, before.most_bytes, null)))
            as most_bytes,
          if(not e.is_unclean or before.hw <= e.start_offset, 0L,
             if(before.hw is null or e.live is null, null, greatest(0L, least(before.hw, coalesce(array_max(transform(
               filter(before.reached, x -> x.replica_id <> e.leader and array_contains(e.live, x.replica_id)),
               x -> x.reached)), e.start_offset)) - e.start_offset))) as avoidable,
          before.hw is not null or coalesce(e.is_first, false) as is_measured)))) as cuts),
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
            "of them those before which no leader's HW was seen",
            counts=True,
        ),
        Value("tail_cut_records", "bigint", "records", "last LEO known of the epoch before - start offset"),
        Value("tail_cut_with_zombies_records", "bigint", "records", "the same with what zombies appended"),
        Value("committed_lost_records", "bigint", "records", "below an HW seen before, and not on the new leader"),
        Value("committed_lost_min_bytes", "bigint", "bytes", "their size at least, by the nearest positions looked at"),
        Value("committed_lost_max_bytes", "bigint", "bytes", "their size at most"),
        Value(
            "avoidable_lost_records",
            "bigint",
            "records",
            "of them those last seen on another live replica at an unclean election: a lower bound",
        ),
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
            "cut below the replica's own HW: must be 0",
            counts=True,
            over="truncations",
        ),
    ),
    compute=compute,
    reads_samples=True,
    needs_coverage=False,
)
