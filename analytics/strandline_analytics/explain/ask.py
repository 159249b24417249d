"""Selects the events that an explanation of a partition is made from, and reads them with Spark.

Invariant: observations of replicas, the large part of an export, are read only for the time around the question; an
answer concerns one cluster, and if several have such a partition they are listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F

from strandline_analytics.explain.chain import Chain, Moment, candidates, explain, moment
from strandline_analytics.explain.stall import (
    HeldBack,
    HeldLso,
    PartitionAt,
    explain_held_back,
    explain_stall,
    holder_at,
)
from strandline_analytics.silver.membership import holds
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.s18_stalls import stalls
from strandline_analytics.timeline.event import MOVES, Event, Selection, Stall, stall_from
from strandline_analytics.timeline.order import events

AROUND_US = 120_000_000
"""Observations of replicas are read from this long before a question's moment to this long after it, us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPartition:
    """One partition, and what to explain: the decision of a partition epoch, or whatever lies in [start_us, end_us)."""

    topic: str
    partition: int
    partition_epoch: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    cluster_id: str | None = None

    def holds(self, t_us: int) -> bool:
        """Whether a moment lies in the window."""
        return (self.start_us is None or t_us >= self.start_us) and (self.end_us is None or t_us < self.end_us)


def decision(silver: Silver, asked: ExplainedPartition) -> Chain | list[Event]:
    """The chain of the one decision that fits; the list of fitting decisions if there is not exactly one."""
    found = events(silver, _selection(asked))
    fitting = [
        event
        for event in candidates(found)
        if asked.partition_epoch in (None, event.partition_epoch) and asked.holds(event.t_us)
    ]
    if len({(event.key, event.partition_epoch) for event in fitting}) != 1:
        return fitting
    return _explained(silver, asked, found, fitting[0])


def around(silver: Silver, asked: ExplainedPartition, at_us: int) -> tuple[Moment, Chain | None] | list[str]:
    """The state at a moment, and the chain of the nearest decision; the clusters, unless just one has the partition."""
    found = events(silver, _selection(asked))
    decisions = candidates(found)
    clusters = sorted({event.cluster_id for event in found if event.partition is not None})
    if len(clusters) != 1:
        return clusters
    known = moment(decisions, at_us)
    return known, None if known.nearest is None else _explained(silver, asked, found, known.nearest)


def _explained(silver: Silver, asked: ExplainedPartition, found: list[Event], chosen: Event) -> Chain:
    own = [event for event in found if event.partition is None or event.key == chosen.key]
    return explain(own + _looks(silver, asked, chosen.t_us, chosen.t_us), chosen.partition_epoch or 0)


def stall(silver: Silver, asked: ExplainedPartition) -> Chain | list[Stall]:
    """The chain of the one stall of the high watermark that overlaps the window; a list unless there is exactly one."""
    rows = stalls(silver).where(f"partition = {asked.partition}").collect()
    fitting = [
        episode
        for episode in map(stall_from, (row.asDict(recursive=True) for row in rows))
        if episode.topic == asked.topic
        and asked.cluster_id in (None, episode.cluster_id)
        and (asked.start_us is None or episode.t1 > asked.start_us)
        and (asked.end_us is None or episode.t0 < asked.end_us)
    ]
    if len(fitting) != 1:
        return sorted(fitting, key=lambda episode: episode.t0)
    only = fitting[0]
    # The moves into and out of the stall may be far away, but moves are few; observations of replicas are many.
    found = events(silver, _selection(asked))
    return explain_stall(only, found + _looks(silver, asked, only.t0, only.t1))


def _looks(silver: Silver, asked: ExplainedPartition, t0: int, t1: int) -> list[Event]:
    looks = ("REPLICA_SAMPLE",)
    selection = replace(_selection(asked), types=looks, sample_types=looks, node_events=False)
    return events(silver, replace(selection, start_us=t0 - AROUND_US, end_us=t1 + AROUND_US))


def _selection(asked: ExplainedPartition) -> Selection:
    return Selection(
        topics=(asked.topic,), partitions=(asked.partition,), cluster_id=asked.cluster_id, sample_types=MOVES
    )


# ---- held_back
# Collects what is known of the transactions of a partition at a moment.


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPartition:
    """One partition at one moment."""

    topic: str
    partition: int
    at_us: int
    cluster_id: str | None = None


def held_back(silver: Silver, asked: AskedPartition) -> HeldBack | list[str]:
    """Why readers of committed records stood still; the clusters, if not exactly one has such a partition."""
    its = (F.col("topic") == asked.topic) & (F.col("partition") == asked.partition)
    rows = silver.keys.where(its).select("cluster_id").distinct().collect()
    found = sorted(row.cluster_id for row in rows if asked.cluster_id in (None, row.cluster_id))
    if len(found) != 1:
        return found
    return explain_held_back(_known(silver, asked, found[0]))


def _known(silver: Silver, asked: AskedPartition, cluster_id: str) -> PartitionAt:
    its = (F.col("topic") == asked.topic) & (F.col("partition") == asked.partition)
    rows = holds(silver).where(its & (F.col("cluster_id") == cluster_id)).orderBy("t0").collect()
    known = [_held(row) for row in rows]
    hold = holder_at(known, asked.at_us)
    own = Selection(
        topics=(asked.topic,),
        partitions=(asked.partition,),
        types=("TRANSACTION_OPEN", "TRANSACTION_DECIDED"),
        cluster_id=cluster_id,
        node_events=False,
    )
    changes: list[Event] = []
    if hold is not None and hold.producer_id is not None:
        every = Selection(types=("TRANSACTION_CHANGE",), cluster_id=cluster_id, node_events=False)
        changes = [event for event in by_time(silver, every) if event.get("producer_id") == hold.producer_id]
    return PartitionAt(
        cluster_id=cluster_id,
        partition=f"{asked.topic}-{asked.partition}",
        at_us=asked.at_us,
        holds=known,
        changes=changes,
        events=by_time(silver, own) if hold is not None else [],
    )


def by_time(silver: Silver, selection: Selection) -> list[Event]:
    """The selected events by time; events of the same moment stay in logical order."""
    return sorted(events(silver, selection), key=lambda event: event.t_us)


def _held(row: Any) -> HeldLso:
    return HeldLso(
        t0=row.t0,
        t1=row.t1,
        first_offset=row.first_offset,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        outcome=row.outcome,
        largest_hw=row.largest_hw,
    )
