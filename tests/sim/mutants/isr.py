"""Mutants of the ISR: who may join or leave it, and which proposals of a leader the controller applies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Real, mutant

from strandline.core.control import alter_partition
from strandline.core.control.alter_partition import Attempts
from strandline.core.control.draft import Draft
from strandline.core.errors import Refusal
from strandline.core.log import isr
from strandline.core.log.effects import Effect
from strandline.core.log.events import AlterPartitionAnswered
from strandline.core.log.isr import FollowerProgress, IsrState
from strandline.core.log.proposals import IsrChannel
from strandline.core.messages import AlterPartitionAnswer, IsrMember, PartitionImage, ProposedIsr
from strandline.core.types import NodeId, Offset, TopicPartition


@mutant(isr, "may_join", "r07_joins_below_the_start")
def _without_positions(real: Real, follower: FollowerProgress, *, hw: Offset, leader_leo: Offset, **given: Any) -> bool:
    """R7a: the ISR grows without any position (M44).

    A follower may join the ISR below the high watermark and below the start of the leader's epoch.
    """
    return follower.remote_leo is not None and follower.is_caught_up(leader_leo, given["now_ms"], given["lag_max_ms"])


@mutant(isr, "may_join", "r07_joins_below_the_start")
def _without_epoch_start(
    real: Real, follower: FollowerProgress, *, hw: Offset, leader_leo: Offset, **given: Any
) -> bool:
    """R7b: the ISR grows before the true high watermark is known (KAFKA-7128; TR4b, TR6).

    A follower may join the ISR at the leader's high watermark, though below the start of its epoch.
    """
    leo = follower.remote_leo
    return leo is not None and leo >= hw and follower.is_caught_up(leader_leo, given["now_ms"], given["lag_max_ms"])


@mutant(alter_partition, "_check_epochs", "r08_proposal_of_another_state")
def _sender_alone(real: Real, partition: PartitionImage, sender: NodeId, proposal: ProposedIsr) -> Refusal | None:
    """R8: stale AlterPartition accepted (KIP-497; I14).

    The controller applies a proposal of the leader without comparing leader epoch and partition epoch.
    """
    current = proposal._replace(leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch)
    return real(partition, sender, current)


@mutant(IsrState, "maximal", "tr09_pending_member")
def _committed(real: Real, state: IsrState) -> frozenset[NodeId]:
    """R9a: a pending member is not counted (KIP-497; TR9).

    Until the controller has answered, the high watermark does not wait for a member that was proposed.
    """
    return frozenset(state.committed)


@mutant(IsrState, "maximal", "tr09_pending_removal")
def _proposed(real: Real, state: IsrState) -> frozenset[NodeId]:
    """R9b: a shrink counts before its answer (KIP-497; TR9, mirrored).

    A member that the leader proposes to remove is no longer counted, though it may be elected yet.
    """
    if state.pending is None or len(state.pending.members) >= len(state.committed):
        return real(state)
    return state.pending.members


@mutant(alter_partition, "_check_members", "tr10_old_incarnation")
def _any_incarnation(
    real: Real, draft: Draft, partition: PartitionImage, members: tuple[IsrMember, ...]
) -> Refusal | None:
    """R10: node epoch not checked (KIP-903, KAFKA-14139; TR10).

    The controller admits a member to the ISR whose proof was given by an earlier process of that node.
    """
    current = tuple(
        member._replace(node_epoch=record.image.node_epoch) if record is not None else member
        for member, record in zip(members, [draft.node(member.node_id) for member in members], strict=True)
    )
    return real(draft, partition, current)


# 21 and 22: proposals that are sent more than once.


@mutant(Attempts, "answer_again", "tr16_retried_alter_partition")
def _as_new(real: Real, *_: Any) -> None:
    """21: reverted while a copy is under way (TR16).

    Attempts are not numbered, so a copy applies a proposal that its sender knows was refused.
    """
    return None


def _refreshed(channel: IsrChannel, proposal: ProposedIsr) -> ProposedIsr:
    nodes = channel._state.nodes
    known = (nodes.get(member.node_id) for member in proposal.new_isr)
    members = tuple(
        IsrMember(member.node_id, node.node_epoch if node is not None else member.node_epoch)
        for member, node in zip(proposal.new_isr, known, strict=True)
    )
    return proposal if members == proposal.new_isr else proposal._replace(new_isr=members)


@mutant(IsrChannel, "maybe_send", "tr10_resent_proposal", pure=False)
def _sends_refreshed(real: Real, channel: IsrChannel, now_ms: int, out: list[Effect]) -> None:
    """22: node epochs refreshed when a proposal is sent again (TR10, sub-case).

    A leader names the newest incarnation of a member, not the one whose fetch earned the place.
    """
    if channel._in_flight is None:
        for tp, proposal in list(channel.waiting.items()):
            fresh = _refreshed(channel, proposal)
            if fresh is not proposal:
                real.differs()
                channel.waiting[tp] = fresh
    real(channel, now_ms, out)


# 110a, 110b: a sequence that another sender has used, in the controller's answer and in the leader's handling.


@mutant(alter_partition, "_out_of_sequence", tests="tests/core/test_alter_partition.py tests/core/test_isr_channel.py")
def _says_not_which(real: Real, *given: Any) -> AlterPartitionAnswer:
    """110a: refused sequence without the last one (M71).

    A leader whose count fell behind a forged proposal never learns what to exceed.
    """
    return replace(real(*given), last_sequence=None)


@mutant(IsrChannel, "answered", tests="tests/core/test_isr_channel.py", pure=False)
def _does_not_look(
    real: Real, self: IsrChannel, event: AlterPartitionAnswered, out: list[Effect]
) -> list[TopicPartition]:
    """110b: last sequence not taken over (M71).

    A leader goes on counting below a forged proposal, and none of its own is looked at again.
    """
    if event.answer.last_sequence is not None:
        real.differs()
        event = replace(event, answer=replace(event.answer, last_sequence=None))
    return real(self, event, out)


@mutant(IsrChannel, "forget", pure=False)
def _keeps_what_waits(real: Real, self: IsrChannel, tp: TopicPartition) -> None:
    """121: proposal not forgotten at a new epoch (M45; TR9).

    A leader that is deposed, or elected again, goes on asking for what it proposed in the epoch before.
    """
    if tp in self._state.leaders:
        real(self, tp)
    elif tp in self.waiting:
        real.differs()
