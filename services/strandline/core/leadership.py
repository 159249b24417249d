"""Decides what the coming, going and stopping of a node means for every partition it has a part in.

Invariant: a node that is fenced, shutting down or unclean is in no ISR from that very transaction on, even as
the last member (I15); a partition then has a leader from ISR or ELR, or visibly none.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.controller_state import NodeRecord
from strandline.core.draft import Draft
from strandline.core.election import Elected, ElectionType, elect
from strandline.core.elr import elr_after
from strandline.core.messages import NodeImage, PartitionImage
from strandline.core.topic_configs import allows_unclean
from strandline.core.types import NodeId


def fence(draft: Draft, node_ids: list[NodeId], cause: str, last_heartbeats: dict[NodeId, int | None]) -> None:
    """End the nodes' part in every partition. All are marked first, so that none of them is elected meanwhile."""
    gone = [node_id for node_id in node_ids if not _record(draft, node_id).image.fenced]
    for node_id in gone:
        _put(draft, node_id, fenced=True)
        _session_event(draft, node_id, "fence", cause, last_heartbeats.get(node_id))
    for node_id in gone:
        leave_partitions(draft, node_id, "node_fenced")
    _decided(draft, "fence", f"{cause}: {', '.join(map(str, gone))}" if gone else "")


def unfence(draft: Draft, node_id: NodeId) -> None:
    """Let a node take part; partitions without a leader may have found one."""
    _put(draft, node_id, fenced=False)
    _session_event(draft, node_id, "unfence", "heartbeat", None)
    elect_leaderless(draft, node_id)


def elect_leaderless(draft: Draft, node_id: NodeId) -> None:
    """A node became active: partitions without a leader may have found one in it."""
    for partition in list(draft.partitions()):
        if partition.leader is None and node_id in partition.replicas:
            elect_if_possible(draft, partition)


def begin_shutdown(draft: Draft, node_id: NodeId) -> None:
    """Controlled shutdown: hand over what the node leads, take it out of every ISR, at once."""
    if _record(draft, node_id).image.shutting_down:
        return
    _put(draft, node_id, shutting_down=True)
    leave_partitions(draft, node_id, "controlled_shutdown")
    _decided(draft, "controlled_shutdown", f"node {node_id}")


def leave_partitions(draft: Draft, node_id: NodeId, cause: str, *, unclean: bool = False) -> None:
    """Take a node out of every ISR (below min ISR into the ELR, if it is clean) and give its partitions leaders."""
    for partition in list(draft.partitions()):
        if node_id in partition.isr or partition.leader == node_id or (unclean and node_id in partition.elr):
            _leave(draft, partition, node_id, cause, unclean)


def _leave(draft: Draft, partition: PartitionImage, node_id: NodeId, cause: str, unclean: bool) -> None:
    new_isr = tuple(member for member in partition.isr if member != node_id)
    elr = elr_after(partition, new_isr, unclean=(node_id,) if unclean else ())
    left = draft.put_partition(replace(partition, isr=new_isr, elr=elr), cause=cause)
    if left.leader == node_id or left.leader is None:
        elect_now(draft, left, cause)


def reign_anew(draft: Draft, node_id: NodeId, cause: str) -> None:
    """A new incarnation: every partition the node led gets a new leader epoch, whoever is elected (M56, TR21)."""
    for partition in list(draft.partitions()):
        if partition.leader == node_id:
            elect_now(draft, partition, cause)


def elect_if_possible(draft: Draft, partition: PartitionImage) -> None:
    """Elect for a partition without a leader; without a candidate nothing changes."""
    if _choose(draft, partition) is not None:
        elect_now(draft, partition, "election")


def elect_now(draft: Draft, partition: PartitionImage, cause: str) -> PartitionImage:
    """Hold an election by the topic's own rules. Nobody eligible: the partition is offline."""
    chosen = _choose(draft, partition)
    if chosen is not None:
        return install(draft, partition, chosen, cause)
    if partition.leader is None:
        return partition
    return draft.put_partition(replace(partition, leader=None), cause=cause, new_reign=True)


def install(draft: Draft, partition: PartitionImage, chosen: Elected, cause: str) -> PartitionImage:
    """Make the elected one leader of a new epoch. An unclean one begins a new history alone (M41, M48)."""
    leader = chosen.leader
    if chosen.kind is ElectionType.UNCLEAN:
        changed = replace(
            partition,
            leader=leader,
            isr=(leader,),
            elr=(),
            recovering=True,
            last_unclean_leader_epoch=draft.next_leader_epoch(partition.tp),
        )
        cause = "unclean_election"
        _decided(draft, "unclean_election", f"{partition.tp.topic_id}-{partition.tp.partition}: node {leader}")
    else:
        isr = partition.isr if leader in partition.isr else (leader,)
        changed = replace(partition, leader=leader, isr=isr, elr=elr_after(partition, isr))
    return draft.put_partition(changed, cause=cause, election=chosen.kind, new_reign=True)


def _choose(draft: Draft, partition: PartitionImage) -> Elected | None:
    allowed = allows_unclean(draft.configs(partition.tp.topic_id))
    return elect(partition, draft.is_active, unclean_allowed=allowed)


def _record(draft: Draft, node_id: NodeId) -> NodeRecord:
    record = draft.node(node_id)
    assert record is not None, f"node {node_id} is not registered"
    return record


def _put(draft: Draft, node_id: NodeId, *, fenced: bool | None = None, shutting_down: bool | None = None) -> None:
    record = _record(draft, node_id)
    image: NodeImage = record.image
    if fenced is not None:
        image = replace(image, fenced=fenced)
    if shutting_down is not None:
        image = replace(image, shutting_down=shutting_down)
    draft.put_node(replace(record, image=image))


def _session_event(draft: Draft, node_id: NodeId, phase: str, cause: str, last_heartbeat_ms: int | None) -> None:
    draft.emit(
        "NODE_SESSION",
        None,
        subject_node_id=node_id,
        phase=phase,
        cause=cause,
        last_heartbeat_ms=last_heartbeat_ms,
        rack=_record(draft, node_id).image.rack,
    )


def _decided(draft: Draft, decision: str, outcome: str) -> None:
    if not outcome:
        return
    nodes = draft.nodes()
    draft.emit(
        "CONTROLLER_DECISION",
        None,
        decision=decision,
        live_set=tuple(record.image.node_id for record in nodes if not record.image.fenced),
        fenced_set=tuple(record.image.node_id for record in nodes if record.image.fenced),
        outcome=outcome,
    )
