"""What a sample of a partition says: the leader's look at every replica, the follower's look at itself.

It changes nothing; `reporting` decides when.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from strandline.core.effects import Emit
from strandline.core.follower import FollowerReplica
from strandline.core.leader import LeaderReplica
from strandline.core.messages import NodeImage
from strandline.core.progress import FollowerProgress
from strandline.core.snapshots import committed_fields
from strandline.core.types import NodeId, Offset


def look_of(leader: LeaderReplica) -> tuple[object, ...]:
    """What has to differ for a new sample to say anything new."""
    remotes = tuple(follower.remote_leo for follower in leader.progress.values())
    return (leader.log.leo, leader.log.vote, leader.log.hw, remotes, leader.isr)


def leader_epochs(leader: LeaderReplica) -> dict[str, object]:
    """The envelope's epochs, as this leader knows them."""
    return {"leader_epoch": leader.image.leader_epoch, "partition_epoch": leader.isr.partition_epoch}


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
    shared: dict[str, object] = {
        **leader_epochs(leader),
        "sample_id": sample_id,
        "interval_ms": interval_ms,
        "leader_leo": log.leo,
        "hw": hw,
        "acked_offset": leader.acked_offset,
        "log_start": log.log_start_offset,
        "leo_bytes": log.sizes.bytes_before(log.leo),
        "hw_bytes": log.sizes.bytes_before(hw),
        "hw_next_append_ms": next_append_ms if hw < log.leo else None,
    }
    maximal = leader.isr.maximal.union(isr)
    own: dict[str, object] = {"leo": log.leo, "durable_leo": log.vote, "expected_state": "member"}
    yield Emit("REPLICA_SAMPLE", log.tp, shared | _place(leader.node_id, isr, maximal) | own)
    for follower in leader.progress.values():
        place = _place(follower.node_id, isr, maximal)
        yield Emit("REPLICA_SAMPLE", log.tp, shared | place | _seen(follower, leader, nodes, isr))


def _place(node_id: NodeId, isr: Collection[NodeId], maximal: Collection[NodeId]) -> dict[str, object]:
    return {"replica_id": node_id, "in_isr": node_id in isr, "in_maximal_isr": node_id in maximal}


def _seen(
    follower: FollowerProgress, leader: LeaderReplica, nodes: Mapping[NodeId, NodeImage], isr: Collection[NodeId]
) -> dict[str, object]:
    return {
        "leo": follower.remote_leo,
        "durable_leo": follower.remote_leo,
        "last_fetch_ms": follower.last_fetch_ms,
        "last_caught_up_ms": follower.last_caught_up_ms,
        "expected_state": _expected(follower.node_id, leader, nodes, isr),
    }


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
    fields: dict[str, object] = {
        "leader_epoch": follower.leader_epoch,
        "partition_epoch": follower.image.partition_epoch,
        "interval_ms": interval_ms,
        "leo": follower.log.leo,
        "hw": follower.log.hw,
        "fetch_leader_id": follower.leader,
    }
    return Emit("LOCAL_SAMPLE", follower.log.tp, fields)


def leader_snapshot(leader: LeaderReplica) -> Emit:
    """What a leader knows of its partition as a whole."""
    log: dict[str, object] = {
        "new_isr": leader.isr.committed,
        "leo": leader.log.leo,
        "hw": leader.log.hw,
        "log_start": leader.log.log_start_offset,
        "start_offset": leader.epoch_start_offset,
    }
    return Emit("STATE_SNAPSHOT", leader.log.tp, committed_fields(leader.image) | log | leader_epochs(leader))


def member(leader: LeaderReplica, node_id: NodeId) -> dict[str, object]:
    """What the leader knows of one that joins or leaves the ISR."""
    follower = leader.progress.get(node_id)
    if follower is None:
        return {"replica_id": node_id}
    return {
        "replica_id": node_id,
        "leo": follower.remote_leo,
        "last_fetch_ms": follower.last_fetch_ms,
        "last_caught_up_ms": follower.last_caught_up_ms,
    }
