"""What is known of the transactions of a partition at a moment, asked of Spark.

Invariant: every answer is of one cluster; where several have such a partition they are listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from strandline_analytics.explain.stall import HeldBack, HeldLso, PartitionAt, explain_held_back, holder_at
from strandline_analytics.silver.membership import holds
from strandline_analytics.silver.tables import Silver
from strandline_analytics.timeline.event import Event, Selection, events_from
from strandline_analytics.timeline.order import timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPartition:
    """One partition at one moment."""

    topic: str
    partition: int
    at_us: int
    cluster_id: str | None = None


def held_back(silver: Silver, asked: AskedPartition) -> HeldBack | list[str]:
    """Why readers of committed records stood still; where no cluster or several have such a partition, those."""
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
        changes = [event for event in _events(silver, every) if event.get("producer_id") == hold.producer_id]
    return PartitionAt(
        cluster_id=cluster_id,
        partition=f"{asked.topic}-{asked.partition}",
        at_us=asked.at_us,
        holds=known,
        changes=changes,
        events=_events(silver, own) if hold is not None else [],
    )


def _events(silver: Silver, selection: Selection) -> list[Event]:
    found = events_from([row.asDict(recursive=True) for row in timeline(silver, selection).collect()])
    return sorted(found, key=lambda event: event.t_us)


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
