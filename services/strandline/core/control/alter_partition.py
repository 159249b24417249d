"""Decides whether a leader's proposal for an ISR is applied: five fences, then the shape, then the members.

Invariants (I14): an accepted proposal names the current leader epoch and partition epoch and comes from the
leader; all its members are unfenced, the added ones of the very incarnation that earned the place (TR10); one
attempt applies once, and an attempt older than one already seen never applies (TR16).
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.control.draft import Draft
from strandline.core.control.election import elr_after, in_assignment_order
from strandline.core.control.messages import TopicRef
from strandline.core.control.nodes import why_unknown
from strandline.core.control.positions import is_of_a_lost_reign
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import (
    AlterPartitionAnswer,
    AlterPartitionRequest,
    IsrDecision,
    IsrMember,
    PartitionImage,
    ProposedIsr,
)
from strandline.core.types import NodeEpoch, NodeId

MAX_AHEAD = 1 << 31
"""How far a sequence may be ahead of the last one. An honest node counts by ones; without the limit one forged request
could use up all sequences that its node epoch has."""


class Attempts:
    """The latest attempt of every node epoch, with its answer. Volatile: a new reign refuses old attempts anyway.

    A refusal because of the sequence always names the sequence to exceed, so a leader whose count fell behind that of
    another sender can continue at once (M71).
    """

    def __init__(self) -> None:
        self._latest: dict[NodeId, tuple[AlterPartitionRequest, AlterPartitionAnswer]] = {}

    def answer_again(self, request: AlterPartitionRequest) -> AlterPartitionAnswer | None:
        """The stored answer for a copy of the last attempt, INVALID_REQUEST for a sequence that is not the next, None
        for a new attempt."""
        latest, answer = self._latest.get(request.node_id, (None, AlterPartitionAnswer()))
        if latest is None or latest.node_epoch != request.node_epoch:
            return _out_of_sequence(request, 0) if request.request_sequence > MAX_AHEAD else None
        # Its contents and not only its number: a forged request of the same number is no copy (M71).
        if request == latest:
            return answer
        ahead = request.request_sequence - latest.request_sequence
        return None if 0 < ahead <= MAX_AHEAD else _out_of_sequence(request, latest.request_sequence)

    def remember(self, request: AlterPartitionRequest, answer: AlterPartitionAnswer) -> None:
        """Store the answer to this attempt."""
        self._latest[request.node_id] = (request, answer)


def _out_of_sequence(request: AlterPartitionRequest, last: int) -> AlterPartitionAnswer:
    refusal = Refusal(
        ErrorCode.INVALID_REQUEST,
        f"request_sequence {request.request_sequence} is not the next after {last}, the last of node epoch "
        f"{request.node_epoch}; send the proposal again with {last + 1}",
    )
    return AlterPartitionAnswer(refusal=refusal, last_sequence=last)


def alter_partitions(draft: Draft, attempts: Attempts, request: AlterPartitionRequest) -> AlterPartitionAnswer:
    """Apply what may be applied of a request for this cluster, in the order of checks of PROTOCOL.md#the-wire."""
    refusal = _refuse_whole(draft, request)
    if refusal is not None:
        return AlterPartitionAnswer(refusal=refusal)
    # A late copy is not decided again: the leader may know that the first one was refused, and act on that, while the
    # state by now allows the same proposal (TR16).
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
    """Refuse a process that is not the current incarnation of its node; ``by_itself``: the process sent the request."""
    record = draft.node(node_id)
    if record is None:
        return why_unknown(draft, node_id, node_epoch)
    if by_itself and is_of_a_lost_reign(record, node_epoch, draft.header.next_node_epoch):
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"node_epoch {node_epoch} of node {node_id} was given by a reign whose end is lost, and is unknown to this "
            f"store; stop this process and start it again, so that it registers again",
        )
    if by_itself and node_epoch > record.image.node_epoch:
        # Only controllers assign epochs, so this store has forgotten one (TR18); the process is not at fault.
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            f"node_epoch {node_epoch} of node {node_id} is beyond {record.image.node_epoch}, the last of this store, "
            f"which is older than the cluster",
        )
    if record.image.node_epoch != node_epoch:
        remedy = (
            "a newer process registered, this one must stop"
            if by_itself
            else "give that one, or leave node_epoch out to mean the process that runs"
        )
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"node_epoch {node_epoch} of node {node_id} is not the current {record.image.node_epoch}; {remedy}",
        )
    # The level rose while it had no session, and it would not keep to rules and quotas that it cannot read (C105).
    if by_itself and record.incarnation_id and record.feature_max < draft.header.feature_level:
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"node {node_id} speaks feature levels up to {record.feature_max}, and the cluster went on to "
            f"{draft.header.feature_level} after its session ended; start this process again, so that it registers",
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
    # The leader is not at fault: only controllers give these epochs, so this store has forgotten them (TR18).
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
        return _invalid(f"new_isr {members} is not a subset of the replicas {list(partition.replicas)}")
    if partition.leader not in members:
        return _invalid(f"new_isr {members} lacks the leader {partition.leader}")
    if proposal.recovering and len(members) > 1:
        return _invalid(f"new_isr {members} has more than the leader while it recovers from an unclean election")
    if proposal.recovering and not partition.recovering:
        return _invalid("leader_recovery_state goes from recovered to recovering; only the controller may do that")
    return None


def _check_members(draft: Draft, partition: PartitionImage, members: tuple[IsrMember, ...]) -> Refusal | None:
    for member in members:
        # A node that shuts down has left the ISR and still fetches, so its leader proposes it again: it would be a
        # member when it stops (KIP-841).
        if not draft.is_active(member.node_id):
            return _ineligible(member, "is fenced or shutting down")
        # Only added members, and those to be proven: checking all would block a shrink while another member
        # restarts (PROTOCOL.md#the-wire).
        proves = member.node_id in partition.unproven and member.node_epoch is not None
        if member.node_id in partition.isr and not proves:
            continue
        record = draft.node(member.node_id)
        # The log of that process has earned the place; the next process may have come back with an empty disk (TR10).
        if record is None or member.node_epoch != record.image.node_epoch:
            return _ineligible(member, f"is another incarnation than node_epoch {member.node_epoch}")
    return None


def _apply(draft: Draft, partition: PartitionImage, proposal: ProposedIsr) -> PartitionImage:
    new_isr = in_assignment_order(partition, (member.node_id for member in proposal.new_isr))
    # The members that the leader counted in their present process (M64); `_check_members` compared their epochs.
    counted = {member.node_id for member in proposal.new_isr if member.node_epoch is not None}
    changed = replace(
        partition,
        isr=new_isr,
        elr=elr_after(partition, new_isr),
        unproven=tuple(node_id for node_id in partition.unproven if node_id not in counted),
        recovering=proposal.recovering,
    )
    # A change of nothing is not stored, so the answer must not name the partition epoch that it would have had.
    if changed == partition:
        return partition
    cause = "catch_up" if set(new_isr) >= set(partition.isr) else "lag"
    return draft.put_partition(changed, cause=cause, initiator="leader")


def _decision(partition: PartitionImage) -> IsrDecision:
    return IsrDecision(
        tp=partition.tp,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
        recovering=partition.recovering,
        unproven=partition.unproven,
    )


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _ineligible(member: IsrMember, why: str) -> Refusal:
    return Refusal(ErrorCode.INELIGIBLE_REPLICA, f"node {member.node_id} {why}; it may not be in the ISR now")
