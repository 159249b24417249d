"""What can be asked to be seen of a data node: for DescribePartitions, DescribeReplicas and DescribeProducers.

It changes nothing.
"""

from __future__ import annotations

from strandline.core.leader import LeaderReplica
from strandline.core.messages import PartitionView, ReplicaStateView, ReplicaView
from strandline.core.node_state import NodeState
from strandline.core.progress import FollowerProgress
from strandline.core.types import TopicPartition


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
    """The leader among its replicas: it fetches nothing, and is where its own log ends."""
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
