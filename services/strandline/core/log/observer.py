"""Lets an observer watch a data node's core while it decides; an observer changes nothing.

A core runs without an observer. `observe.reporting` is the observer of services and simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.core.log.effects import Effect
from strandline.core.log.isr import FollowerProgress
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.state import NodeState
from strandline.core.messages import FetchResult, PartitionView, ReplicaStateView, ReplicaView
from strandline.core.types import NodeId, Offset, TopicPartition


class NodeObserver:
    """Called after something happened. It may only add `Emit` effects to ``out``; this one adds none."""

    def __init__(self, state: NodeState) -> None:
        """``state``: of the node that is observed."""

    def leads(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """A reign began."""

    def follows(self, tp: TopicPartition, now_ms: int) -> None:
        """This node follows or observes a partition."""

    def leaves(self, leader: LeaderReplica, out: list[Effect]) -> None:
        """A reign ends."""

    def appended(self, leader: LeaderReplica, now_ms: int) -> None:
        """Records were appended up to the log end."""

    def hw_rose(
        self, leader: LeaderReplica, old: Offset, cause: str, blockers: Iterable[NodeId], now_ms: int, out: list[Effect]
    ) -> None:
        """The HW rose from ``old``; ``blockers`` had held it back."""

    def isr_changed(self, leader: LeaderReplica, now_ms: int, out: list[Effect], *, initiator: str) -> None:
        """The committed ISR may have changed."""

    def fetched(self, leader: LeaderReplica, replica: NodeId, now_ms: int) -> None:
        """A replica's fetch was counted."""

    def refused(self, replica: NodeId, results: Iterable[FetchResult]) -> None:
        """A replica's fetch was looked at; some of its results may be refusals."""

    def served(self, leader: LeaderReplica, replica: NodeId, end: Offset) -> None:
        """A replica was sent records up to ``end``."""

    def ticked(self, now_ms: int, out: list[Effect]) -> None:
        """Time passed."""


Observe = Callable[[NodeState], NodeObserver]
"""Makes the observer of one core."""


# ---- views
# Views of a data node, for DescribePartitions, DescribeReplicas and DescribeProducers. They change nothing.


def partition_view(leader: LeaderReplica, now_ms: int) -> PartitionView:
    """One partition as its leader sees it."""
    log, image = leader.log, leader.image
    return PartitionView(
        tp=log.tp,
        leader_epoch=image.leader_epoch,
        partition_epoch=leader.isr.partition_epoch,
        epoch_start_offset=leader.epoch_start_offset,
        leo=log.leo,
        durable_leo=log.vote,
        high_watermark=log.hw,
        log_start_offset=log.log_start_offset,
        isr=leader.isr.committed,
        maximal_isr=tuple(sorted(leader.isr.maximal)),
        elr=image.elr,
        min_isr=image.min_isr,
        last_stable_offset=log.lso,
        oldest_open_producer_id=next(iter(log.producers.transactions.open), None),
        replicas=(_own_view(leader), *(_follower_view(leader, f, now_ms) for f in leader.progress.values())),
    )


def _own_view(leader: LeaderReplica) -> ReplicaView:
    """The leader's own row among its replicas: it does not fetch, and its position is its own log end."""
    return ReplicaView(
        node_id=leader.node_id,
        node_epoch=leader.node_epoch,
        remote_leo=leader.log.leo,
        last_fetch_age_ms=None,
        last_caught_up_age_ms=None,
        in_isr=leader.node_id in leader.isr.committed,
        is_observer=False,
    )


def _follower_view(leader: LeaderReplica, follower: FollowerProgress, now_ms: int) -> ReplicaView:
    fetched, caught_up = follower.last_fetch_ms, follower.last_caught_up_ms
    return ReplicaView(
        node_id=follower.node_id,
        node_epoch=follower.node_epoch,
        remote_leo=follower.remote_leo,
        last_fetch_age_ms=None if fetched is None else max(0, now_ms - fetched),
        last_caught_up_age_ms=None if caught_up is None else max(0, now_ms - caught_up),
        in_isr=follower.node_id in leader.isr.committed,
        is_observer=follower.node_id not in leader.image.replicas,
    )


def replica_view(state: NodeState, tp: TopicPartition) -> ReplicaStateView | None:
    """One replica as it sees itself; None without a log."""
    log = state.logs.get(tp)
    if log is None:
        return None
    follower = state.followers.get(tp)
    image = state.images[tp]
    return ReplicaStateView(
        tp=tp,
        leo=log.leo,
        durable_leo=log.vote,
        high_watermark=log.hw,
        log_start_offset=log.log_start_offset,
        fetch_state=str(follower.state) if follower else "leading",
        reason=follower.reason if follower else "",
        leader=image.leader,
        leader_epoch=image.leader_epoch,
        epochs=tuple((e.epoch, e.start_offset) for e in log.epochs.entries),
        last_stable_offset=log.lso,
    )
