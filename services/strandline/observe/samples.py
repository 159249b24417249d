"""What a sample of a partition says: the leader's look at every replica, the follower's look at itself.

It changes nothing; `reporting` decides when.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from strandline.core.effects import Emit
from strandline.core.follower import FollowerReplica
from strandline.core.leader import LeaderReplica
from strandline.core.messages import NodeImage
from strandline.core.snapshots import committed_snapshot
from strandline.core.state_events import LocalSample, Member, Moment, ReplicaSample
from strandline.core.types import LeaderEpoch, NodeId, Offset, PartitionEpoch


def look_of(leader: LeaderReplica) -> tuple[object, ...]:
    """What has to differ for a new sample to say anything new."""
    remotes = tuple(follower.remote_leo for follower in leader.progress.values())
    return (leader.log.leo, leader.log.vote, leader.log.hw, remotes, leader.isr)


def leader_epochs(leader: LeaderReplica) -> tuple[LeaderEpoch, PartitionEpoch]:
    """The epochs of this leader's events, as it knows them."""
    return leader.image.leader_epoch, leader.isr.partition_epoch


def replica_samples(
    leader: LeaderReplica,
    nodes: Mapping[NodeId, NodeImage],
    *,
    sample_id: int,
    interval_ms: int,
    hw: Offset,
    isr: Collection[NodeId],
    next_append_ms: int | None,
) -> Iterator[Emit]:
    """One row for each replica, all of the same moment. ``hw`` and ``isr`` may be those of just before it."""
    log = leader.log
    maximal = leader.isr.maximal.union(isr)
    waits = None if next_append_ms is None or hw >= log.leo else Moment(next_append_ms)
    own = ReplicaSample(
        sample_id=sample_id,
        interval_ms=interval_ms,
        replica_id=leader.node_id,
        leo=log.leo,
        durable_leo=log.vote,
        leader_leo=log.leo,
        hw=hw,
        acked_offset=leader.acked_offset,
        log_start=log.log_start_offset,
        leo_bytes=log.sizes.bytes_before(log.leo),
        hw_bytes=log.sizes.bytes_before(hw),
        hw_next_append_ms=waits,
        last_fetch_ms=None,
        last_caught_up_ms=None,
        in_isr=leader.node_id in isr,
        in_maximal_isr=leader.node_id in maximal,
        expected_state="member",
        leader_epoch=leader.image.leader_epoch,
        partition_epoch=leader.isr.partition_epoch,
    )
    yield Emit(log.tp, own)
    for follower in leader.progress.values():
        seen = own._replace(
            replica_id=follower.node_id,
            leo=follower.remote_leo,
            durable_leo=follower.remote_leo,
            last_fetch_ms=_moment(follower.last_fetch_ms),
            last_caught_up_ms=_moment(follower.last_caught_up_ms),
            in_isr=follower.node_id in isr,
            in_maximal_isr=follower.node_id in maximal,
            expected_state=_expected(follower.node_id, leader, nodes, isr),
        )
        yield Emit(log.tp, seen)


def _moment(at_ms: int | None) -> Moment | None:
    return None if at_ms is None else Moment(at_ms)


def _expected(
    node_id: NodeId, leader: LeaderReplica, nodes: Mapping[NodeId, NodeImage], isr: Collection[NodeId]
) -> str:
    if node_id not in leader.image.replicas:
        return "observer"
    if node_id in isr:
        return "member"
    node = nodes.get(node_id)
    return "down" if node is None or node.fenced else "catching_up"


def local_sample(follower: FollowerReplica, interval_ms: int) -> Emit:
    """A follower's look at itself."""
    seen = LocalSample(
        interval_ms=interval_ms,
        leo=follower.log.leo,
        hw=follower.log.hw,
        fetch_leader_id=follower.leader,
        leader_epoch=follower.leader_epoch,
        partition_epoch=follower.image.partition_epoch,
    )
    return Emit(follower.log.tp, seen)


def leader_snapshot(leader: LeaderReplica) -> Emit:
    """What a leader knows of its partition as a whole."""
    known = committed_snapshot(leader.image)._replace(
        new_isr=leader.isr.committed,
        leo=leader.log.leo,
        hw=leader.log.hw,
        log_start=leader.log.log_start_offset,
        start_offset=leader.epoch_start_offset,
        leader_epoch=leader.image.leader_epoch,
        partition_epoch=leader.isr.partition_epoch,
    )
    return Emit(leader.log.tp, known)


def member(leader: LeaderReplica, node_id: NodeId) -> Member:
    """What the leader knows of one that joins or leaves the ISR."""
    follower = leader.progress.get(node_id)
    if follower is None:
        return Member(node_id)
    return Member(node_id, follower.remote_leo, _moment(follower.last_fetch_ms), _moment(follower.last_caught_up_ms))
