"""Decides whether a process may be the node it says it is, and what its coming changes.

Invariants: a new incarnation has a new node epoch, and every partition it led gets a new leader epoch in the
same transaction (M56, I1); an unclean one is in no ISR and no ELR from that transaction on (M58, I15).
"""

from __future__ import annotations

from dataclasses import fields, replace

from strandline.core import feature_levels
from strandline.core.controller_state import NodeRecord
from strandline.core.draft import Draft
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.leadership import begin_unproven, elect_leaderless, leave_partitions, reign_anew
from strandline.core.messages import NodeImage, NodeRegistered, RegisterNode
from strandline.core.sessions import Sessions
from strandline.core.state_events import NodeSession
from strandline.core.types import NodeEpoch, Role

PAST_INCARNATIONS = 16
"""How many superseded incarnations of a node are remembered."""


def register(draft: Draft, sessions: Sessions, request: RegisterNode) -> NodeRegistered:
    """Register a process, or say why not. The caller grants the session once this succeeded."""
    before = draft.node(request.node_id)
    alive = sessions.is_alive(request.node_id)
    level = shared_level(draft, sessions, request)
    refusal = _refuse(draft, before, alive, request) or (level if isinstance(level, Refusal) else None)
    if refusal is not None:
        return NodeRegistered(refusal=refusal, controller_epoch=draft.header.controller_epoch)
    assert isinstance(level, int)
    draft.header = replace(draft.header, feature_level=level)
    if before is not None and before.incarnation_id == request.incarnation_id:
        return _answer(draft, before)
    record = _admit(draft, before, alive, request)
    return _answer(draft, record)


def _answer(draft: Draft, record: NodeRecord) -> NodeRegistered:
    header = draft.header
    return NodeRegistered(
        node_epoch=record.image.node_epoch,
        controller_epoch=header.controller_epoch,
        cluster_id=header.cluster_id,
        feature_level=header.feature_level,
    )


def _refuse(draft: Draft, before: NodeRecord | None, alive: bool, request: RegisterNode) -> Refusal | None:
    return (
        _other_rules(draft, request)
        or _superseded(before, request)
        or _duplicate(before, alive, request)
        or _assigned_observer(draft, request)
    )


def _other_rules(draft: Draft, request: RegisterNode) -> Refusal | None:
    ours = draft.header.rules
    for field in fields(ours):
        asked, stored = getattr(request.rules, field.name), getattr(ours, field.name)
        if asked != stored:
            name = field.name.replace("_", "-")
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"{name}={asked} is not the cluster's rule {name}={stored}; start node {request.node_id} with {stored}",
                field=f"rules.{field.name}",
            )
    return None


def _superseded(before: NodeRecord | None, request: RegisterNode) -> Refusal | None:
    if before is None or request.incarnation_id not in before.past_incarnations:
        return None
    return Refusal(
        ErrorCode.STALE_BROKER_EPOCH,
        f"incarnation {request.incarnation_id} of node {request.node_id} was superseded; this process must stop",
    )


def _duplicate(before: NodeRecord | None, alive: bool, request: RegisterNode) -> Refusal | None:
    if before is None or not alive or before.directory_id == request.directory_id:
        return None
    return Refusal(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"node_id {request.node_id} is in use by a live process with another data directory; "
        f"give this node another id, or wait until the other's session ends",
    )


def _assigned_observer(draft: Draft, request: RegisterNode) -> Refusal | None:
    if Role.LEADER in request.roles:
        return None
    assigned = sum(request.node_id in partition.replicas for partition in draft.partitions())
    if not assigned:
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"roles: node {request.node_id} is assigned to {assigned} partitions and cannot become an observer; "
        f"start it with the roles leader and follower",
    )


def shared_level(draft: Draft, sessions: Sessions, request: RegisterNode) -> int | Refusal:
    """The highest feature level that this controller, all live nodes and this one speak, or a refusal if none."""
    others = [record for record in draft.nodes() if record.image.node_id != request.node_id]
    live = [record for record in others if sessions.is_alive(record.image.node_id)]
    low, high = feature_levels.shared((record.feature_min, record.feature_max) for record in live)
    if max(low, request.feature_min) <= min(high, request.feature_max):
        return min(high, request.feature_max)
    return Refusal(
        ErrorCode.UNSUPPORTED_VERSION,
        f"feature levels {request.feature_min}-{request.feature_max} of node {request.node_id} do not overlap "
        f"{low}-{high} of the controller and the live nodes; run a release that speaks one of these",
    )


def _admit(draft: Draft, before: NodeRecord | None, alive: bool, request: RegisterNode) -> NodeRecord:
    node_epoch = NodeEpoch(draft.header.next_node_epoch)
    draft.header = replace(draft.header, next_node_epoch=node_epoch + 1)
    lost = _lost_records(before, request)
    # A process whose disk lost records begins fenced even within a live session: it has lost its places anyway.
    stays = alive and before is not None and not before.image.fenced and lost is None
    record = _record(before, request, node_epoch, fenced=not stays)
    draft.put_node(record)
    cause = lost or ("restart" if before else "new")
    draft.emit(None, NodeSession(request.node_id, "register", cause, last_heartbeat_ms=None, rack=request.rack))
    if lost is not None:
        leave_partitions(draft, [request.node_id], lost, unclean=True)
    elif draft.proves_members:
        begin_unproven(draft, request.node_id, "restart")
    else:
        reign_anew(draft, request.node_id, "restart")
    if stays:
        # It may have been shutting down, and be wanted after all.
        elect_leaderless(draft, request.node_id)
    _observe(draft, before, record)
    return record


def _lost_records(before: NodeRecord | None, request: RegisterNode) -> str | None:
    """Why this directory may lack records that it held (M58), as the cause of what follows; None if nothing shows it.

    The first registration of a new directory says that it is unclean, too; it cannot have lost anything.
    """
    if before is None:
        return None
    if before.directory_id != request.directory_id:
        return "new_disk"
    if request.unclean:
        return "unclean_restart"
    return "directory_restored" if _is_older_copy(before, request) else None


def _is_older_copy(before: NodeRecord, request: RegisterNode) -> bool:
    """Whether the directory does not remember the process that registered last from it: it went back in time (M67)."""
    known = request.known_incarnations
    return bool(known) and bool(before.incarnation_id) and before.incarnation_id not in known


def _record(before: NodeRecord | None, request: RegisterNode, node_epoch: NodeEpoch, *, fenced: bool) -> NodeRecord:
    past = (*before.past_incarnations, before.incarnation_id)[-PAST_INCARNATIONS:] if before else ()
    image = NodeImage(
        node_id=request.node_id,
        node_epoch=node_epoch,
        roles=request.roles,
        client_endpoint=request.client_endpoint,
        internal_endpoint=request.internal_endpoint,
        rack=request.rack,
        fenced=fenced,
        shutting_down=False,
    )
    return NodeRecord(
        image=image,
        incarnation_id=request.incarnation_id,
        directory_id=request.directory_id,
        feature_min=request.feature_min,
        feature_max=request.feature_max,
        past_incarnations=past,
    )


def _observe(draft: Draft, before: NodeRecord | None, record: NodeRecord) -> None:
    """Every partition lists every observer; a node that begins or ceases to be one changes them all (M60)."""
    was = before is not None and before.image.is_observer
    if was == record.image.is_observer:
        return
    observers = draft.observers()
    for partition in list(draft.partitions()):
        draft.put_partition(replace(partition, observers=observers), cause="observers")
