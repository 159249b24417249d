"""Collects with Spark what is known of a consumer group at a moment.

Invariant: every answer concerns one cluster; if several have a group of this name they are listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.explain import ask
from strandline_analytics.explain.chain import Chain
from strandline_analytics.explain.standstill import GroupAt, Span, Standstill, Term, explain_group
from strandline_analytics.silver.groups import commits, group_events, group_lags
from strandline_analytics.silver.kept import PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.s18_stalls import stalls
from strandline_analytics.stats.s23_rebalances import rebalances
from strandline_analytics.stats.s24_stuck_members import stuck
from strandline_analytics.stats.s25_commits_and_owners import ownership
from strandline_analytics.timeline.event import Event, Selection

_TYPES = ("GROUP_CHANGE", "MEMBER_CHANGE", "COORDINATOR_LOAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGroup:
    """One group at one moment."""

    group_id: str
    at_us: int
    cluster_id: str | None = None


def standstill(silver: Silver, asked: AskedGroup) -> Standstill | list[str]:
    """Why the group stood still; the clusters, if not exactly one has such a group."""
    found = _clusters(silver, asked)
    if len(found) != 1:
        return found
    return explain_group(_known(silver, asked, found[0]))


def _clusters(silver: Silver, asked: AskedGroup) -> list[str]:
    named = F.col("group_id") == asked.group_id
    from_groups = group_events(silver).where(named).select("cluster_id")
    committed = commits(silver).where(named).join(silver.places, PLACE).select("cluster_id")
    rows = from_groups.unionByName(committed).distinct().collect()
    return sorted(row.cluster_id for row in rows if asked.cluster_id in (None, row.cluster_id))


def _known(silver: Silver, asked: AskedGroup, cluster_id: str) -> GroupAt:
    own = (F.col("group_id") == asked.group_id) & (F.col("cluster_id") == cluster_id)

    def then(rows: DataFrame) -> list[Any]:
        return rows.where(own & (F.col("t0") <= asked.at_us) & (F.col("t1") > asked.at_us)).collect()

    def of_places(rows: DataFrame) -> list[Any]:
        found = then(rows.join(F.broadcast(silver.places), PLACE))
        return sorted(found, key=lambda row: (row.topic, row.partition))

    lags = [
        Span(t0=row.t0, t1=row.t1, what=_place(row), lag=max(0, row.hw - row.committed))
        for row in of_places(group_lags(silver))
    ]
    moving = then(rebalances(silver))
    place = group_events(silver).where(own).select("topic_id", "partition").limit(1).collect()
    coordinator = _coordinator(silver, cluster_id, *place[0]) if place else None
    return GroupAt(
        cluster_id=cluster_id,
        group_id=asked.group_id,
        at_us=asked.at_us,
        coordinator=coordinator[0] if coordinator else None,
        terms=coordinator[1] if coordinator else (),
        events=_events(silver, asked.group_id, cluster_id, coordinator[0] if coordinator else None),
        rebalance=next((_rebalance(row) for row in moving), None),
        unowned=[
            Span(t0=row.t0, t1=row.t1, what=_place(row)) for row in of_places(ownership(silver)) if row.is_unowned
        ],
        stuck=[
            Span(t0=row.t0, t1=row.t1, what=_place(row), member_id=row.member_id, lag=row.lag_records)
            for row in of_places(stuck(silver))
        ],
        lags=lags,
        stalls=_stalls(silver, asked.at_us, cluster_id, {span.what for span in lags if span.lag == 0}),
    )


def _coordinator(silver: Silver, cluster_id: str, topic_id: str, partition: int) -> tuple[str | None, list[Term]]:
    """The name of the coordinator's partition, if the controller reported it, and the decisions about it."""
    its = (F.col("cluster_id") == cluster_id) & (F.col("topic_id") == topic_id) & (F.col("partition") == partition)
    rows = silver.known_control.where(its & (F.col("t1") > F.col("t0"))).orderBy("t0").collect()
    terms = [Term(t0=row.t0, t1=row.t1, leader=row.leader, leader_epoch=row.leader_epoch) for row in rows]
    name = silver.keys.where(its).select("topic", "partition").limit(1).collect()
    return (_place(name[0]) if name else None), terms


def _events(silver: Silver, group_id: str, cluster_id: str, coordinator: str | None) -> list[Event]:
    if coordinator is None:
        return []
    topic, _, partition = coordinator.rpartition("-")
    selection = Selection(
        topics=(topic,), partitions=(int(partition),), types=_TYPES, cluster_id=cluster_id, node_events=False
    )
    found = ask.by_time(silver, selection)
    return [e for e in found if e.event_type == "COORDINATOR_LOAD" or e.get("group_id") == group_id]


def _rebalance(row: Any) -> Span:
    seen = {"is_start_seen": row.is_start_seen, "is_end_seen": row.is_end_seen}
    return Span(t0=row.t0, t1=row.t1, member_id=row.slowest_member, **seen)


def _stalls(silver: Silver, at_us: int, cluster_id: str, read_up: set[str]) -> list[Chain]:
    """The stalls of the partitions in which the group had nothing left to read."""
    if not read_up:
        return []
    now = (F.col("t0") <= at_us) & (F.col("t1") > at_us) & (F.col("cluster_id") == cluster_id)
    chains = []
    for row in stalls(silver).where(now).orderBy("topic", "partition").collect():
        if _place(row) in read_up:
            one = ask.ExplainedPartition(
                topic=row.topic, partition=row.partition, cluster_id=cluster_id, start_us=at_us, end_us=at_us + 1
            )
            found = ask.stall(silver, one)
            chains += [found] if isinstance(found, Chain) else []
    return chains


def _place(row: Any) -> str:
    return f"{row.topic}-{row.partition}"
