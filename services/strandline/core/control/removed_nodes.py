"""Decides when a node may be removed, what is kept of it, and what a process of it is answered afterwards (C85).

Invariant: a node that has a session, or that any partition's replicas name, is never removed, so nothing is ever placed
on or elected from an unknown node. What is kept is kept for ever: its last node epoch distinguishes a process of the
removed node from one that an old store never knew (TR18). Kafka's UnregisterBroker also removes brokers that are
assigned, which leaves their partitions with replicas that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from strandline.core import types
from strandline.core.control.draft import Draft
from strandline.core.control.messages import NodeUnregistered, UnregisterNode
from strandline.core.control.nodes import Sessions
from strandline.core.control.state import ClusterState, NodeRecord, RemovedNode
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import MetadataImage
from strandline.core.state_events import NodeSession
from strandline.core.types import NodeEpoch, NodeId

_NAMED = 3
"""Partitions that a refusal names; the rest are counted."""


def unregister(draft: Draft, sessions: Sessions, request: UnregisterNode) -> NodeUnregistered:
    """Remove a node, or say why not."""
    record = draft.node(request.node_id)
    if record is None:
        return NodeUnregistered(refusal=_not_registered(draft, request.node_id))
    refusal = _alive(sessions, record) or _assigned(draft, record)
    if refusal is None:
        _remove(draft, record)
        _raise_level(draft, sessions)
    return NodeUnregistered(refusal=refusal)


def _raise_level(draft: Draft, sessions: Sessions) -> None:
    """The node that is gone may have been the last one of an older release: no registration needs to follow for the
    others to use what they all speak."""
    live = [record for record in draft.nodes() if sessions.is_alive(record.image.node_id)]
    if live:
        _, high = types.shared((record.feature_min, record.feature_max) for record in live)
        draft.header = replace(draft.header, feature_level=high)


def why_unknown(draft: Draft, node_id: NodeId, node_epoch: NodeEpoch) -> Refusal:
    """What a process is answered whose node is not registered: stop, if the node was removed after it registered."""
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
    held = [partition.tp for partition in draft.partitions() if node_id in partition.replicas]
    if not held:
        return None
    names = [f"{draft.base.topics[tp.topic_id].name}-{tp.partition}" for tp in held[:_NAMED]]
    rest = ", ..." if len(held) > _NAMED else ""
    count = f"{len(held)} partition{'s' if len(held) > 1 else ''}"
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"node_id: node {node_id} is a replica of {count} ({', '.join(names)}{rest}), and replicas cannot be moved to "
        f"another node yet; start node {node_id} again, on any machine: with an empty directory it copies everything",
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
    """The nodes of which the newest word is that they were removed, of all that a recovery is given (TR18)."""
    words = [*images, store.snapshot()] if store is not None else [*images]
    removed: set[NodeId] = set()
    for image in sorted(words, key=lambda image: (image.controller_epoch, image.metadata_offset)):
        removed |= set(image.removed_node_ids)
        removed -= {node.node_id for node in image.nodes}
    return removed


def recovered_tombstones(
    removed: Iterable[NodeId], latest: Mapping[NodeId, NodeRecord], store: ClusterState | None
) -> dict[NodeId, RemovedNode]:
    """What a recovered store keeps of removed nodes; a node epoch that is no longer known is 0, which no node has."""
    kept = dict(store.removed_nodes) if store is not None else {}
    for node_id in sorted(removed):
        record = latest.get(node_id)
        epoch = record.image.node_epoch if record is not None else NodeEpoch(0)
        directory_id = record.directory_id if record is not None else ""
        kept.setdefault(node_id, RemovedNode(node_id=node_id, node_epoch=epoch, directory_id=directory_id))
    return kept
