"""Decides whether the controller's store lacks something that a node was sent, and what proves it (TR18, C35).

Invariants: no epoch is assigned twice (I14). A store that was restored from a backup would do so; a proof of a position
that the store does not know reveals it, and from then on nothing is served from it. A claim without a proof only causes
a refusal of the node that makes it (M72), or else one forged number could stop the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from strandline.core import messages
from strandline.core.control.messages import (
    AlterAcls,
    AlterClientQuotas,
    AlterPartitionReassignments,
    AlterTopicConfigs,
    ControllerRequest,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DrainNode,
    ElectLeaders,
    GetMetadata,
    ShutdownNode,
    UnregisterNode,
    WatchMetadata,
)
from strandline.core.control.state import ClusterState, NodeRecord, Standing, standing
from strandline.core.errors import ControllerHint, ErrorCode, Refusal
from strandline.core.positions import is_proof
from strandline.core.types import NodeEpoch, NodeId

REMEDY = "restore the newest store, or run `strandline controller recover` with the nodes' data directories"


class Objection(NamedTuple):
    """Why a node's request cannot be served from this store."""

    refusal: Refusal
    stops_serving: bool
    """Whether it is proven that the store lost something; otherwise only this node is refused."""


def objection(
    state: ClusterState,
    request: messages.RegisterNode | messages.Heartbeat | messages.AlterPartitionRequest | WatchMetadata,
) -> Objection | None:
    """What the position in a request shows about the store; None if it shows nothing.

    A change is sent only after it is durable, so no node can have been sent a position that the store does not know.
    """
    node_id, proof = request.node_id, request.position
    if node_id is None or proof is None:
        return None
    topics = request.topics_position if isinstance(request, messages.RegisterNode | messages.Heartbeat) else None
    place = standing(state.reigns, state.header.metadata_offset, _place(proof)) if proof.reign_id else None
    is_complete = isinstance(request, messages.RegisterNode | messages.Heartbeat)
    if place is Standing.BEYOND_RECOVERY and topics is not None and _is_known(state, topics):
        if isinstance(request, messages.RegisterNode):
            # It starts again, as the message asks; what was decided without its directory does not count it (C38).
            return None
        return Objection(_of_a_lost_end(node_id, proof), stops_serving=False)
    why = _by_numbers(state, node_id, proof) if place is None else _by_history(state, node_id, proof, place)
    if why is None:
        return None
    if place is Standing.BEYOND_RECOVERY and not is_complete:
        # Its heartbeat says whether a topic changed.
        return Objection(Refusal(ErrorCode.NOT_CONTROLLER, why), stops_serving=False)
    if is_proof(state.header.secret, node_id, proof):
        return Objection(Refusal(ErrorCode.NOT_CONTROLLER, why), stops_serving=True)
    return None if place is None else Objection(_unproven(why), stops_serving=False)


def _place(proof: messages.PositionProof) -> messages.Position:
    return messages.Position(proof.reign_id, proof.metadata_offset)


def _is_known(state: ClusterState, position: messages.Position) -> bool:
    return standing(state.reigns, state.header.metadata_offset, position) in (Standing.KNOWN, Standing.OLD)


def _by_history(state: ClusterState, node_id: NodeId, proof: messages.PositionProof, place: Standing) -> str | None:
    if place in (Standing.KNOWN, Standing.OLD):
        return None
    seen = f"metadata offset {proof.metadata_offset} of reign {proof.reign_id}"
    if place is Standing.BEYOND_RECOVERY:
        return (
            f"node {node_id} has seen {seen}, which no node given to the last recovery knew of; run `strandline "
            f"controller recover` again and give this node's directory, too"
        )
    ours = state.reigns.get(proof.reign_id)
    has = "not that reign" if ours is None else f"that reign up to {ours.last_offset or state.header.metadata_offset}"
    return _sentence(node_id, seen, has)


def _by_numbers(state: ClusterState, node_id: NodeId, proof: messages.PositionProof) -> str | None:
    """The objection to a node of a release without reign ids: only numbers beyond the store's own show something."""
    header = state.header
    if proof.controller_epoch > header.controller_epoch:
        return _sentence(node_id, f"controller epoch {proof.controller_epoch}", str(header.controller_epoch))
    if proof.metadata_offset > header.metadata_offset:
        return _sentence(node_id, f"metadata offset {proof.metadata_offset}", str(header.metadata_offset))
    if proof.node_epoch >= header.next_node_epoch:
        return _sentence(node_id, f"node epoch {proof.node_epoch}", str(header.next_node_epoch - 1))
    return None


def _of_a_lost_end(node_id: NodeId, proof: messages.PositionProof) -> Refusal:
    return Refusal(
        ErrorCode.STALE_BROKER_EPOCH,
        f"node {node_id} has seen metadata offset {proof.metadata_offset} of reign {proof.reign_id}, which ended "
        f"before that in the recovered store; no topic changed since, so it is enough to start this process again",
    )


def _unproven(why: str) -> Refusal:
    return Refusal(ErrorCode.NOT_CONTROLLER, f"{why}; the claim has no valid proof, so only this node is refused")


def unproven_claim(state: ClusterState, request: messages.RegisterNode | messages.Heartbeat) -> Refusal | None:
    """Refuse a node that claims to have seen more than the store holds, without a proof."""
    claim = (
        _of_heartbeat(state, request) if isinstance(request, messages.Heartbeat) else _of_registration(state, request)
    )
    return None if claim is None else _unproven(claim)


def _of_registration(state: ClusterState, request: messages.RegisterNode) -> str | None:
    seen = request.controller_epoch_seen
    if seen is not None and seen > state.header.controller_epoch:
        return _sentence(request.node_id, f"controller epoch {seen}", f"{state.header.controller_epoch}")
    return next((why for partition in request.epochs_seen if (why := _of_partition(state, request, partition))), None)


def _of_heartbeat(state: ClusterState, request: messages.Heartbeat) -> str | None:
    header = state.header
    if request.metadata_offset > header.metadata_offset:
        return _sentence(request.node_id, f"metadata offset {request.metadata_offset}", str(header.metadata_offset))
    if request.node_epoch >= header.next_node_epoch:
        return _sentence(request.node_id, f"node epoch {request.node_epoch}", f"{header.next_node_epoch - 1}")
    return None


def is_of_a_lost_reign(record: NodeRecord, node_epoch: NodeEpoch, next_node_epoch: int) -> bool:
    """Whether ``node_epoch`` was assigned in the lost end of a reign, so that waiting would not end.

    Recovery, and every new reign, continue above all epochs that may have been assigned (C33). Such a process is not
    adopted: the lost end may have removed its replicas (M58). It has to register again.
    """
    return record.image.node_epoch < node_epoch < next_node_epoch


def why_empty(state: ClusterState, node_id: NodeId, cluster_id: str | None) -> str | None:
    """One sentence if a node of ``cluster_id`` contacted a store that no node ever registered at; else None.

    A lost store looks just like a new cluster. Refusing the node as one of another cluster would end its process, and
    then all the others, for lack of a file that can be recovered.
    """
    if state.nodes or state.removed_nodes:
        return None
    return (
        f"the store is empty, but node {node_id} belongs to cluster {cluster_id}: {REMEDY}; "
        f"if this is a new cluster, point that node to its own controller and start this one again"
    )


def _of_partition(state: ClusterState, request: messages.RegisterNode, seen: messages.EpochsSeen) -> str | None:
    where = f"partition {seen.tp.partition} of topic {seen.tp.topic_id}"
    known = state.partition(seen.tp)
    if known is None:
        if seen.tp.topic_id in state.deleted_topic_ids:
            return None
        return _sentence(request.node_id, where, "no such partition")
    if seen.leader_epoch > known.leader_epoch:
        return _sentence(request.node_id, f"leader epoch {seen.leader_epoch} of {where}", str(known.leader_epoch))
    if seen.partition_epoch > known.partition_epoch:
        return _sentence(
            request.node_id, f"partition epoch {seen.partition_epoch} of {where}", str(known.partition_epoch)
        )
    return None


def _sentence(node_id: NodeId, seen: str, stored: str) -> str:
    return f"the store is older than the cluster: node {node_id} has seen {seen}, the store has {stored}; {REMEDY}"


# ---- doubt
# Decides what must wait because a new reign has not heard from the nodes yet (C37).
#
# Invariants: until every live replica of a partition has been heard in this reign, no leader is elected for it.
# Its position may show that the store lost a transaction, which may have removed the candidate from the ISR. The wait
# for a node ends with its session; one that a step fences is not waited for in that step.
# No administrator's change is made and no linearizable read is answered before a node has shown its position, or a
# whole session has passed: both would be decided from a store that may be older than the cluster.

CHANGES = (
    CreateTopics,
    DeleteTopics,
    AlterTopicConfigs,
    CreatePartitions,
    ElectLeaders,
    ShutdownNode,
    UnregisterNode,
    AlterPartitionReassignments,
    DrainNode,
    AlterAcls,
    AlterClientQuotas,
)
"""Requests of administrators."""


class Doubt:
    """The nodes that a reign has not heard yet; empty before it begins."""

    def __init__(self) -> None:
        self._unheard: set[NodeId] = set()
        self._witnesses: frozenset[NodeId] = frozenset()
        self._first_node_epoch = NodeEpoch(0)
        self._is_doubted = False

    def begin(self, unfenced: Iterable[NodeId], *, first_node_epoch: NodeEpoch, is_first: bool = False) -> None:
        """Start a reign, in which none of the nodes with a session has been heard.

        ``first_node_epoch`` is the lowest that this reign can give; ``is_first``: the store is new.
        """
        self._unheard = set(unfenced)
        self._witnesses = frozenset(self._unheard)
        self._first_node_epoch = first_node_epoch
        self._is_doubted = not is_first

    def heard(self, node_id: NodeId) -> bool:
        """A node was heard and the store knows its position, or it was fenced. Returns whether it was waited for."""
        was_waited_for = node_id in self._unheard
        self._unheard.discard(node_id)
        return was_waited_for

    def witnessed(self, request: messages.RegisterNode | messages.Heartbeat) -> None:
        """The store holds what this request shows that its node was sent before the reign.

        An emptied directory shows nothing. A node that was fenced may have missed what the others were sent; it counts
        only where the store knows no other.
        """
        if isinstance(request, messages.RegisterNode):
            shows = request.position is not None
        else:
            shows = request.node_epoch < self._first_node_epoch
        if shows and (not self._witnesses or request.node_id in self._witnesses):
            self._is_doubted = False

    def end(self) -> None:
        """A whole session has passed, in which every live node could have been heard."""
        self._is_doubted = False

    def refusal(self, request: ControllerRequest) -> Refusal | None:
        """Why this request has to wait; None if it does not."""
        is_read = isinstance(request, GetMetadata) and request.linearizable
        if not self._is_doubted or not (is_read or isinstance(request, CHANGES)):
            return None
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            "this controller began to decide a moment ago and no node has reported to it yet, so its store may be "
            "older than the cluster; it answers as soon as a node has reported, or after one session",
            remedy="ask again; nothing was done",
            hint=ControllerHint("UNHEARD"),
        )

    def waits_for(
        self, partition: messages.PartitionImage, is_unfenced: Callable[[NodeId], bool]
    ) -> tuple[NodeId, ...]:
        """The live replicas that an election of this partition has to wait for."""
        if not self._unheard:
            return ()
        return tuple(n for n in partition.replicas if n in self._unheard and is_unfenced(n))
