"""Decides whether a process may register as the node that it claims to be, and what the registration changes.

Invariants: a new incarnation has a new node epoch, and every partition it led gets a new leader epoch in the
same transaction (M56, I1); an unclean one is in no ISR and no ELR from that transaction on (M58, I15).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from strandline.core import types
from strandline.core.control.draft import Draft
from strandline.core.control.leadership import begin_new_reign, begin_unproven, elect_leaderless, leave_partitions
from strandline.core.control.messages import NodeUnregistered, UnregisterNode
from strandline.core.control.state import ClusterState, NodeRecord, RemovedNode
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import MetadataImage, NodeImage, NodeRegistered, RegisterNode
from strandline.core.state_events import NodeSession
from strandline.core.types import NodeEpoch, NodeId, Role

# ---- sessions
# Decides which nodes are alive: heartbeats renew a session, silence ends it, our own pauses never do.
#
# Invariant (M59): a gap in the controller's own time costs no node its session; between two heartbeats of a node
# such gaps extend its session by one session time-out at most, so a dead node is fenced in the end. While the
# controller could not be reached at all, by its own decision, every deadline moves by that whole time (C14, TR30).


@dataclass(slots=True)
class _Session:
    deadline_ms: int
    last_heartbeat_ms: int | None = None
    extended_ms: int = 0
    metadata_offset: int | None = None


class Sessions:
    """The sessions of this reign. Volatile: a restarted controller grants full ones."""

    def __init__(self, session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self._timeout_ms = session_timeout_ms
        self._interval_ms = heartbeat_interval_ms
        self._sessions: dict[NodeId, _Session] = {}
        self._last_tick_ms: int | None = None
        self._first = _Session(0)

    def begin(self, now_ms: int) -> None:
        """Start a reign, and with it a session that is not renewed: every live node is heard before it is over."""
        self._first = _Session(now_ms + self._timeout_ms)

    def first_is_over(self, now_ms: int) -> bool:
        """Whether a session has passed since the reign began, our own pauses left out (M59)."""
        return self._first.deadline_ms <= now_ms

    def grant(self, node_id: NodeId, now_ms: int) -> None:
        """Begin a full session: a registration, or the start of the controller's reign."""
        self._sessions[node_id] = _Session(now_ms + self._timeout_ms)

    def heard(self, node_id: NodeId, now_ms: int, metadata_offset: int) -> None:
        """A heartbeat: the session is full again."""
        self._sessions[node_id] = _Session(now_ms + self._timeout_ms, now_ms, 0, metadata_offset)

    def end(self, node_id: NodeId) -> None:
        """End a session at once."""
        self._sessions.pop(node_id, None)

    def is_alive(self, node_id: NodeId) -> bool:
        """Whether the node's session has not ended."""
        return node_id in self._sessions

    def alive(self) -> Iterable[NodeId]:
        """Every node with a session."""
        return self._sessions.keys()

    @property
    def timeout_ms(self) -> int:
        """How long a session lasts after a heartbeat."""
        return self._timeout_ms

    def last_heartbeat_ms(self, node_id: NodeId) -> int | None:
        """When the node was last heard in this session."""
        session = self._sessions.get(node_id)
        return session.last_heartbeat_ms if session else None

    def metadata_offset(self, node_id: NodeId) -> int | None:
        """How far the node has applied the metadata, as it last said."""
        session = self._sessions.get(node_id)
        return session.metadata_offset if session else None

    def silent(self, now_ms: int) -> set[NodeId]:
        """Every node with a session that has missed two heartbeats, including those whose session is due."""
        quiet_ms = 2 * self._interval_ms
        # Counted from the deadline and not from the last heartbeat: time that M59 excuses is no silence.
        return {n for n, s in self._sessions.items() if now_ms - (s.deadline_ms - self._timeout_ms) > quiet_ms}

    def tick(self, now_ms: int) -> dict[NodeId, int | None]:
        """The sessions that are due, with the time of each node's last heartbeat. The caller ends them."""
        gap_ms = 0 if self._last_tick_ms is None else now_ms - self._last_tick_ms
        self._last_tick_ms = now_ms
        # This process was stopped or blocked, and the heartbeats of that time are still unread: a deadline that has
        # passed shows nothing (M59).
        if gap_ms > self._interval_ms:
            self._extend(gap_ms)
        return {n: s.last_heartbeat_ms for n, s in self._sessions.items() if s.deadline_ms <= now_ms}

    def resume(self, now_ms: int, closed_ms: int) -> None:
        """No node could be heard for the last ``closed_ms``: every deadline moves by that time (C14).

        It is then two heartbeat intervals away at least, so that every node that lives can be heard before it is due.
        That part counts as an extension of M59: a store that stutters must not keep a dead leader for ever.
        """
        self._last_tick_ms = now_ms
        for session in self._all():
            session.deadline_ms += closed_ms
            self._extend_by(session, now_ms + 2 * self._interval_ms - session.deadline_ms)

    def _extend(self, gap_ms: int) -> None:
        for session in self._all():
            self._extend_by(session, gap_ms)

    def _all(self) -> Iterable[_Session]:
        return (*self._sessions.values(), self._first)

    def _extend_by(self, session: _Session, wanted_ms: int) -> None:
        extra_ms = max(0, min(wanted_ms, self._timeout_ms - session.extended_ms))
        session.deadline_ms += extra_ms
        session.extended_ms += extra_ms


PAST_INCARNATIONS = 16
"""How many superseded incarnations of a node are remembered."""


def register(draft: Draft, sessions: Sessions, request: RegisterNode) -> NodeRegistered:
    """Register a process, or refuse it. The caller grants the session once this succeeds."""
    before = draft.node(request.node_id)
    alive = sessions.is_alive(request.node_id)
    level = shared_level(draft, sessions, request)
    refusal = _refuse(draft, before, alive, request) or (level if isinstance(level, Refusal) else None)
    if refusal is not None:
        return NodeRegistered(refusal=refusal, controller_epoch=draft.header.controller_epoch)
    assert isinstance(level, int)
    draft.header = replace(draft.header, feature_level=level)
    # The first answer was lost, or this is a late copy: another node epoch would fence a process that works already.
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
    # A registration that was delayed on its way would otherwise fence the process that has replaced its sender.
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
    assigned = sum(request.node_id in (*each.replicas, *each.queued_target) for each in draft.partitions())
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
    # A node without a session does not hold the level back; it is compared when it registers again.
    live = [record for record in others if sessions.is_alive(record.image.node_id)]
    low, high = types.shared((record.feature_min, record.feature_max) for record in live)
    level = min(high, request.feature_max)
    if (why := _needed_above(draft, level)) is not None:
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, f"node {request.node_id} speaks no feature level with {why}")
    if max(low, request.feature_min) <= level:
        return level
    return Refusal(
        ErrorCode.UNSUPPORTED_VERSION,
        f"feature levels {request.feature_min}-{request.feature_max} of node {request.node_id} do not overlap "
        f"{low}-{high} of the controller and the live nodes; run a release that speaks one of these",
    )


def _needed_above(draft: Draft, level: int) -> str | None:
    """What the cluster has that an older release would not know of and would misread."""
    if level < types.REASSIGNMENTS and any(each.original or each.queued_target for each in draft.partitions()):
        return "reassignments, and some have not ended; let them end, or cancel them, and try again"
    if level < types.REASSIGNMENTS and any(record.image.draining for record in draft.nodes()):
        return "draining, and a node is drained; end that with `strandline node undrain NODE --yes`, and try again"
    if level < types.ACLS and draft.base.acls:
        return "rules of who may do what, which it would not keep to; upgrade it, or take all rules back"
    if level < types.QUOTAS and draft.base.quotas:
        return "quotas of clients, which it would not keep to; upgrade it, or remove all quotas"
    return None


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
        begin_new_reign(draft, request.node_id, "restart")
    if stays:
        # It may have been shutting down; a registration ends that.
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
    """Whether the directory went back in time: it does not remember the last process that registered from it (M67)."""
    known = request.known_incarnations
    # Nothing follows without both: an earlier release keeps no list, and a recovered store knows no incarnation.
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
        # Only the operator ends a drain; a restart in the middle of it does not.
        draining=before is not None and before.image.draining,
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
    """Update every partition's list of observers when a node starts or ceases to be one (M60)."""
    was = before is not None and before.image.is_observer
    if was == record.image.is_observer:
        return
    observers = draft.observers()
    for partition in list(draft.partitions()):
        draft.put_partition(replace(partition, observers=observers), cause="observers")


# ---- removed_nodes
# Decides when a node may be removed, what is kept of it, and how a process of it is answered afterwards (C85).
#
# Invariant: a node that has a session, or that any partition's replicas name, is never removed, so nothing is ever
# placed on or elected from an unknown node. What is kept is kept for ever: its last node epoch distinguishes a process
# of the removed node from one that an old store never knew (TR18). Kafka's UnregisterBroker also removes brokers that
# are assigned, which leaves their partitions with replicas that do not exist.

_NAMED = 3
"""How many partitions a refusal names; the rest are counted."""


def unregister(draft: Draft, sessions: Sessions, request: UnregisterNode) -> NodeUnregistered:
    """Remove a node, or refuse to."""
    record = draft.node(request.node_id)
    if record is None:
        return NodeUnregistered(refusal=_not_registered(draft, request.node_id))
    refusal = _alive(sessions, record) or _assigned(draft, record)
    if refusal is None:
        _remove(draft, record)
        _raise_level(draft, sessions)
    return NodeUnregistered(refusal=refusal)


def _raise_level(draft: Draft, sessions: Sessions) -> None:
    """Raise the feature level if the removed node was the last one of an older release, without waiting for a
    registration."""
    live = [record for record in draft.nodes() if sessions.is_alive(record.image.node_id)]
    if live:
        _, high = types.shared((record.feature_min, record.feature_max) for record in live)
        draft.header = replace(draft.header, feature_level=high)


def why_unknown(draft: Draft, node_id: NodeId, node_epoch: NodeEpoch) -> Refusal:
    """The refusal of a process whose node is not registered: to stop, if the node was removed after it registered."""
    removed = draft.base.removed_nodes.get(node_id)
    if removed is None or node_epoch > removed.node_epoch:
        return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {node_id} is not registered; register it first")
    return Refusal(
        ErrorCode.STALE_BROKER_EPOCH,
        f"node {node_id} was removed from the cluster; this process must stop; started again, it is a new node",
    )


def _not_registered(draft: Draft, node_id: NodeId) -> Refusal:
    if node_id in draft.base.removed_nodes:
        return Refusal(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {node_id} was removed already; there is nothing to do"
        )
    unknown = f"node {node_id} is not registered; `strandline node list` shows those that are"
    return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, unknown)


def _alive(sessions: Sessions, record: NodeRecord) -> Refusal | None:
    node_id = record.image.node_id
    if not sessions.is_alive(node_id):
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"node_id: node {node_id} still has a session, which ends {sessions.timeout_ms} ms after its last heartbeat; "
        f"stop its process (`strandline node shutdown {node_id}`), wait for that, and try again",
        field="node_id",
    )


def _assigned(draft: Draft, record: NodeRecord) -> Refusal | None:
    node_id = record.image.node_id
    held = [each.tp for each in draft.partitions() if node_id in (*each.replicas, *each.queued_target)]
    if not held:
        return None
    names = [f"{draft.base.topics[tp.topic_id].name}-{tp.partition}" for tp in held[:_NAMED]]
    rest = ", ..." if len(held) > _NAMED else ""
    count = f"{len(held)} partition{'s' if len(held) > 1 else ''}"
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"node_id: node {node_id} is a replica of {count} ({', '.join(names)}{rest}); move them first, with "
        f"`strandline node drain {node_id} --remove` or `strandline node replace {node_id} NEW`, or start node "
        f"{node_id} again, on any machine: with an empty directory it copies everything",
        field="node_id",
    )


def _remove(draft: Draft, record: NodeRecord) -> None:
    image = record.image
    draft.remove_node(RemovedNode(node_id=image.node_id, node_epoch=image.node_epoch, directory_id=record.directory_id))
    draft.emit(None, NodeSession(image.node_id, "unregister", "requested", last_heartbeat_ms=None, rack=image.rack))
    if image.is_observer:
        observers = draft.observers()
        for partition in list(draft.partitions()):
            draft.put_partition(replace(partition, observers=observers), cause="observers")


def still_removed(images: Iterable[MetadataImage], store: ClusterState | None) -> set[NodeId]:
    """The nodes that are removed according to the newest of all inputs of a recovery (TR18)."""
    words = [*images, store.snapshot()] if store is not None else [*images]
    removed: set[NodeId] = set()
    for image in sorted(words, key=lambda image: (image.controller_epoch, image.metadata_offset)):
        removed |= set(image.removed_node_ids)
        removed -= {node.node_id for node in image.nodes}
    return removed


def recovered_tombstones(
    removed: Iterable[NodeId], latest: Mapping[NodeId, NodeRecord], store: ClusterState | None
) -> dict[NodeId, RemovedNode]:
    """The tombstones of a recovered store; a node epoch that is no longer known is 0, which no node has."""
    kept = dict(store.removed_nodes) if store is not None else {}
    for node_id in sorted(removed):
        record = latest.get(node_id)
        epoch = record.image.node_epoch if record is not None else NodeEpoch(0)
        directory_id = record.directory_id if record is not None else ""
        kept.setdefault(node_id, RemovedNode(node_id=node_id, node_epoch=epoch, directory_id=directory_id))
    return kept
