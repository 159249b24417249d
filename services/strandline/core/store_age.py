"""Decides whether the controller's store is older than what a node was sent, and whose word is enough for that (TR18).

Invariants: no epoch is handed out twice (I14): a store that was restored from a backup would do so, and a proof of a
position that the store lacks shows it; from then on nothing is served from it. A claim without a proof never does:
it refuses the one node that makes it (M72), or one forged number would stop the cluster.
"""

from __future__ import annotations

from strandline.core.controller_state import ClusterHeader, ClusterState, NodeRecord
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import EpochsSeen, Heartbeat, RegisterNode
from strandline.core.position_proof import is_proof
from strandline.core.types import NodeEpoch, NodeId

REMEDY = "restore the newest store, or run `strandline controller recover` with the nodes' data directories"


def why_too_old(state: ClusterState, request: RegisterNode | Heartbeat) -> str | None:
    """One sentence that names what the node was provably sent and the store lacks; None if nothing shows that.

    Running nodes do not register again when a controller returns, and a store from before its last start comes to
    the very controller epoch they know; but a change is sent only after it is durable, so no node can have a proof of
    a later position than the store holds.
    """
    proof, header = request.position, state.header
    if proof is None or not is_proof(header.secret, request.node_id, proof):
        return None
    if proof.controller_epoch > header.controller_epoch:
        return _sentence(request, f"controller epoch {proof.controller_epoch}", str(header.controller_epoch))
    if proof.metadata_offset > header.metadata_offset:
        return _sentence(request, f"metadata offset {proof.metadata_offset}", str(header.metadata_offset))
    if proof.node_epoch >= header.next_node_epoch:
        return _sentence(request, f"node epoch {proof.node_epoch}", str(header.next_node_epoch - 1))
    return None


def unproven_claim(state: ClusterState, request: RegisterNode | Heartbeat) -> Refusal | None:
    """Refuse a node that says it has seen more than the store holds, without a proof that shows it."""
    claim = _of_heartbeat(state, request) if isinstance(request, Heartbeat) else _of_registration(state, request)
    if claim is None:
        return None
    return Refusal(ErrorCode.NOT_CONTROLLER, f"{claim}; the claim has no valid proof, so only this node is refused")


def _of_registration(state: ClusterState, request: RegisterNode) -> str | None:
    seen = request.controller_epoch_seen
    if seen is not None and seen > state.header.controller_epoch:
        return _sentence(request, f"controller epoch {seen}", f"{state.header.controller_epoch}")
    return next((why for partition in request.epochs_seen if (why := _of_partition(state, request, partition))), None)


def _of_heartbeat(state: ClusterState, request: Heartbeat) -> str | None:
    header: ClusterHeader = state.header
    if request.metadata_offset > header.metadata_offset:
        return _sentence(request, f"metadata offset {request.metadata_offset}", str(header.metadata_offset))
    if request.node_epoch >= header.next_node_epoch:
        return _sentence(request, f"node epoch {request.node_epoch}", f"{header.next_node_epoch - 1}")
    return None


def is_of_a_lost_reign(record: NodeRecord, node_epoch: NodeEpoch, next_node_epoch: int) -> bool:
    """Whether ``node_epoch`` was given by a reign that recovery could not learn of, so that waiting would not end.

    Recovery names no incarnation and continues above every epoch that may have been given (`store_recovery`). Such a
    process is not taken over: that reign may have taken its places from it (M58). It has to register again.
    """
    return not record.incarnation_id and record.image.node_epoch < node_epoch < next_node_epoch


def why_empty(state: ClusterState, node_id: NodeId, cluster_id: str | None) -> str | None:
    """One sentence if a node of ``cluster_id`` came to a store that no node ever registered at; else None.

    A lost store looks just like a new cluster. Refusing the node as a stranger would end its process, and all
    others' after it, for the want of a file that can be recovered.
    """
    if state.nodes or state.removed_nodes:
        return None
    return (
        f"the store is empty, but node {node_id} belongs to cluster {cluster_id}: {REMEDY}; "
        f"if this is a new cluster, point that node to its own controller and start this one again"
    )


def _of_partition(state: ClusterState, request: RegisterNode, seen: EpochsSeen) -> str | None:
    where = f"partition {seen.tp.partition} of topic {seen.tp.topic_id}"
    known = state.partition(seen.tp)
    if known is None:
        if seen.tp.topic_id in state.deleted_topic_ids:
            return None
        return _sentence(request, where, "no such partition")
    if seen.leader_epoch > known.leader_epoch:
        return _sentence(request, f"leader epoch {seen.leader_epoch} of {where}", str(known.leader_epoch))
    if seen.partition_epoch > known.partition_epoch:
        return _sentence(request, f"partition epoch {seen.partition_epoch} of {where}", str(known.partition_epoch))
    return None


def _sentence(request: RegisterNode | Heartbeat, seen: str, stored: str) -> str:
    return (
        f"the store is older than the cluster: node {request.node_id} has seen {seen}, the store has {stored}; {REMEDY}"
    )
