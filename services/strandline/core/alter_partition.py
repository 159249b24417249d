"""Decides whether a leader's proposal for an ISR is applied: five fences, then the shape, then the members.

Invariants (I14): an accepted proposal names the current leader epoch and partition epoch and comes from the
leader; all its members are unfenced, the added ones of the very incarnation that earned the place (TR10); one
attempt applies once, and an attempt older than one already seen never applies (TR16).
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.controller_messages import TopicRef
from strandline.core.draft import Draft
from strandline.core.elr import elr_after, in_assignment_order
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import (
    AlterPartitionAnswer,
    AlterPartitionRequest,
    IsrDecision,
    IsrMember,
    PartitionImage,
    ProposedIsr,
)
from strandline.core.store_age import is_of_a_lost_reign
from strandline.core.types import NodeEpoch, NodeId


class Attempts:
    """The latest attempt of every node epoch, with its answer. Volatile: a new reign refuses old attempts anyway."""

    def __init__(self) -> None:
        self._latest: dict[NodeId, tuple[NodeEpoch, int, AlterPartitionAnswer]] = {}

    def answer_again(self, request: AlterPartitionRequest) -> AlterPartitionAnswer | None:
        """The stored answer for an equal sequence, INVALID_REQUEST for a lower one, None for a new attempt."""
        node_epoch, sequence, answer = self._latest.get(request.node_id, (None, 0, AlterPartitionAnswer()))
        if node_epoch != request.node_epoch or request.request_sequence > sequence:
            return None
        if request.request_sequence == sequence:
            return answer
        return AlterPartitionAnswer(
            refusal=Refusal(
                ErrorCode.INVALID_REQUEST,
                f"request_sequence {request.request_sequence} is not above {sequence}, the last of this node epoch",
            )
        )

    def remember(self, request: AlterPartitionRequest, answer: AlterPartitionAnswer) -> None:
        """Keep what this attempt was answered."""
        self._latest[request.node_id] = (request.node_epoch, request.request_sequence, answer)


def alter_partitions(draft: Draft, attempts: Attempts, request: AlterPartitionRequest) -> AlterPartitionAnswer:
    """Apply what may be applied of a request for this cluster, in the order of checks of `protocol-fields` 1.10."""
    refusal = _refuse_whole(draft, request)
    if refusal is not None:
        return AlterPartitionAnswer(refusal=refusal)
    known = attempts.answer_again(request)
    if known is not None:
        return known
    decisions = tuple(_decide(draft, request.node_id, proposal) for proposal in request.partitions)
    answer = AlterPartitionAnswer(partitions=decisions)
    attempts.remember(request, answer)
    return answer


def _refuse_whole(draft: Draft, request: AlterPartitionRequest) -> Refusal | None:
    ours = draft.header.controller_epoch
    if request.controller_epoch != ours:
        return Refusal(
            ErrorCode.STALE_CONTROLLER_EPOCH,
            f"controller_epoch {request.controller_epoch} is not the current {ours}; refresh metadata",
        )
    return check_node_epoch(draft, request.node_id, request.node_epoch)


def check_node_epoch(draft: Draft, node_id: NodeId, node_epoch: NodeEpoch, *, by_itself: bool = True) -> Refusal | None:
    """Refuse a process that is not the current incarnation of its node; ``by_itself``: it says so, not an operator."""
    record = draft.node(node_id)
    if record is None:
        return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {node_id} is not registered; register it first")
    if by_itself and is_of_a_lost_reign(record, node_epoch, draft.header.next_node_epoch):
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"node_epoch {node_epoch} of node {node_id} was given by a reign whose store is lost, and is unknown to "
            f"the recovered one; this process must stop, and be started again to register anew",
        )
    if by_itself and node_epoch > record.image.node_epoch:
        # Epochs are given here, so this store has forgotten one (TR18): the process is not the one to end.
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            f"node_epoch {node_epoch} of node {node_id} is beyond {record.image.node_epoch}, the last of this store, "
            f"which is older than the cluster",
        )
    if record.image.node_epoch != node_epoch:
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"node_epoch {node_epoch} of node {node_id} is not the current {record.image.node_epoch}; "
            f"a newer process registered, this one must stop",
        )
    return None


def _decide(draft: Draft, sender: NodeId, proposal: ProposedIsr) -> IsrDecision:
    partition = draft.partition(proposal.tp)
    if partition is None:
        return IsrDecision(proposal.tp, _unknown(draft, proposal))
    refusal = (
        _check_epochs(partition, sender, proposal)
        or _check_shape(partition, proposal)
        or _check_members(draft, partition, proposal.new_isr)
    )
    if refusal is not None:
        return IsrDecision(proposal.tp, refusal)
    return _decision(_apply(draft, partition, proposal))


def _unknown(draft: Draft, proposal: ProposedIsr) -> Refusal:
    found = draft.topic(TopicRef(topic_id=proposal.tp.topic_id))
    if isinstance(found, Refusal):
        return found
    return Refusal(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{found.name}' has no partition {proposal.tp.partition}"
    )


def _check_epochs(partition: PartitionImage, sender: NodeId, proposal: ProposedIsr) -> Refusal | None:
    """Leader epoch, sender and partition epoch, in Kafka's order."""
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            f"the proposal names leader epoch {proposal.leader_epoch} and partition epoch {proposal.partition_epoch}, "
            f"beyond {partition.leader_epoch} and {partition.partition_epoch} here",
        )
    if proposal.leader_epoch < partition.leader_epoch:
        return Refusal(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader_epoch {proposal.leader_epoch} is older than {partition.leader_epoch}; wait for new metadata",
        )
    if sender != partition.leader:
        return _invalid(f"node {sender} does not lead the partition; only its leader {partition.leader} may propose")
    if proposal.partition_epoch < partition.partition_epoch:
        return Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"partition_epoch {proposal.partition_epoch} is older than {partition.partition_epoch}; "
            f"wait for new metadata",
        )
    return None


def _check_shape(partition: PartitionImage, proposal: ProposedIsr) -> Refusal | None:
    members = [member.node_id for member in proposal.new_isr]
    if not set(members) <= set(partition.replicas) or len(set(members)) < len(members):
        return _invalid(f"new_isr {members} is no subset of the replicas {list(partition.replicas)}")
    if partition.leader not in members:
        return _invalid(f"new_isr {members} lacks the leader {partition.leader}")
    if proposal.recovering and len(members) > 1:
        return _invalid(f"new_isr {members} has more than the leader while it recovers from an unclean election")
    if proposal.recovering and not partition.recovering:
        return _invalid("leader_recovery_state goes from recovered to recovering; only the controller may do that")
    return None


def _check_members(draft: Draft, partition: PartitionImage, members: tuple[IsrMember, ...]) -> Refusal | None:
    for member in members:
        if not draft.is_active(member.node_id):
            return _ineligible(member, "is fenced or shutting down")
        # Only added members: checking all would block a shrink while another member restarts (1.10).
        if member.node_id in partition.isr:
            continue
        record = draft.node(member.node_id)
        if record is None or member.node_epoch != record.image.node_epoch:
            return _ineligible(member, f"is another incarnation than node_epoch {member.node_epoch}")
    return None


def _apply(draft: Draft, partition: PartitionImage, proposal: ProposedIsr) -> PartitionImage:
    new_isr = in_assignment_order(partition, (member.node_id for member in proposal.new_isr))
    changed = replace(partition, isr=new_isr, elr=elr_after(partition, new_isr), recovering=proposal.recovering)
    if changed == partition:
        return partition
    cause = "catch_up" if set(new_isr) > set(partition.isr) else "lag"
    return draft.put_partition(changed, cause=cause, initiator="leader")


def _decision(partition: PartitionImage) -> IsrDecision:
    return IsrDecision(
        tp=partition.tp,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
        recovering=partition.recovering,
    )


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _ineligible(member: IsrMember, why: str) -> Refusal:
    return Refusal(ErrorCode.INELIGIBLE_REPLICA, f"node {member.node_id} {why}; it may not be in the ISR now")
