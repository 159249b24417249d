"""Mutants of the ISR: who may join or leave it, and which proposals of a leader the controller applies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import alter_partition
from strandline.core.control.alter_partition import Attempts
from strandline.core.control.draft import Draft
from strandline.core.errors import Refusal
from strandline.core.log import isr
from strandline.core.log.effects import Effect
from strandline.core.log.events import AlterPartitionAnswered
from strandline.core.log.isr import FollowerProgress, IsrState, Joins
from strandline.core.log.proposals import IsrChannel
from strandline.core.messages import AlterPartitionAnswer, IsrMember, PartitionImage, ProposedIsr
from strandline.core.types import NodeId, Offset, TopicPartition

MUTANTS: tuple[Mutant, ...] = ()


# R7: ISR members that lack committed records.


def _without_positions(
    real: Real, follower: FollowerProgress, *, hw: Offset, leader_leo: Offset, joins: Joins, **given: Any
) -> bool:
    return follower.remote_leo is not None and joins(follower, leader_leo, given["now_ms"], given["lag_max_ms"])


def _without_epoch_start(
    real: Real, follower: FollowerProgress, *, hw: Offset, leader_leo: Offset, joins: Joins, **given: Any
) -> bool:
    leo = follower.remote_leo
    return leo is not None and leo >= hw and joins(follower, leader_leo, given["now_ms"], given["lag_max_ms"])


MUTANTS += (
    Mutant(
        number="R7a",
        name="the ISR grows without any position",
        broken="A follower may join the ISR below the high watermark and below the start of the leader's epoch.",
        source="M44",
        scenario="r07_joins_below_the_start",
        swaps=(Swap(isr, "may_join", _without_positions),),
    ),
    Mutant(
        number="R7b",
        name="the ISR grows before the true high watermark is known",
        broken="A follower may join the ISR at the leader's high watermark, though below the start of its epoch.",
        source="KAFKA-7128; TR4b, TR6",
        scenario="r07_joins_below_the_start",
        swaps=(Swap(isr, "may_join", _without_epoch_start),),
    ),
)


# R8: a proposal made for a state that no longer holds.


def _sender_alone(real: Real, partition: PartitionImage, sender: NodeId, proposal: ProposedIsr) -> Refusal | None:
    current = proposal._replace(leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch)
    found: Refusal | None = real(partition, sender, current)
    return found


MUTANTS += (
    Mutant(
        number="R8",
        name="stale AlterPartition accepted",
        broken="The controller applies a proposal of the leader without comparing leader epoch and partition epoch.",
        source="KIP-497; I14",
        scenario="r08_proposal_of_another_state",
        swaps=(Swap(alter_partition, "_check_epochs", _sender_alone),),
    ),
)


# R9: a change of the ISR takes effect at the wrong moment.


def _committed(real: Real, state: IsrState) -> frozenset[NodeId]:
    return frozenset(state.committed)


def _proposed(real: Real, state: IsrState) -> frozenset[NodeId]:
    if state.pending is None or len(state.pending.members) >= len(state.committed):
        found: frozenset[NodeId] = real(state)
        return found
    return state.pending.members


MUTANTS += (
    Mutant(
        number="R9a",
        name="a pending member is not counted",
        broken="Until the controller has answered, the high watermark does not wait for a member that was proposed.",
        source="KIP-497; TR9",
        scenario="tr09_pending_member",
        swaps=(Swap(IsrState, "maximal", _committed),),
    ),
    Mutant(
        number="R9b",
        name="a shrink counts before its answer",
        broken="A member that the leader proposes to remove is no longer counted, though it may be elected yet.",
        source="KIP-497; TR9, mirrored",
        scenario="tr09_pending_removal",
        swaps=(Swap(IsrState, "maximal", _proposed),),
    ),
)


# R10: a node is identified by its id alone, regardless of its disk.


def _any_incarnation(
    real: Real, draft: Draft, partition: PartitionImage, members: tuple[IsrMember, ...]
) -> Refusal | None:
    records = [draft.node(member.node_id) for member in members]
    current = tuple(
        member._replace(node_epoch=record.image.node_epoch) if record is not None else member
        for member, record in zip(members, records, strict=True)
    )
    found: Refusal | None = real(draft, partition, current)
    return found


MUTANTS += (
    Mutant(
        number="R10",
        name="node epoch not checked",
        broken="The controller admits a member to the ISR whose proof was given by an earlier process of that node.",
        source="KIP-903, KAFKA-14139; TR10",
        scenario="tr10_old_incarnation",
        swaps=(Swap(alter_partition, "_check_members", _any_incarnation),),
    ),
)


# 21 and 22: proposals that are sent more than once.


def _as_new(real: Real, *_: Any) -> None:
    return None


def _refreshed(channel: IsrChannel, proposal: ProposedIsr) -> ProposedIsr:
    nodes = channel._state.nodes
    known = (nodes.get(member.node_id) for member in proposal.new_isr)
    members = tuple(
        IsrMember(member.node_id, node.node_epoch if node is not None else member.node_epoch)
        for member, node in zip(proposal.new_isr, known, strict=True)
    )
    return proposal if members == proposal.new_isr else proposal._replace(new_isr=members)


def _sends_refreshed(real: Real, channel: IsrChannel, now_ms: int, out: list[Effect]) -> None:
    if channel._in_flight is None:
        for tp, proposal in list(channel._waiting.items()):
            fresh = _refreshed(channel, proposal)
            if fresh is not proposal:
                real.differs()
                channel._waiting[tp] = fresh
    real(channel, now_ms, out)


MUTANTS += (
    Mutant(
        number="21",
        name="reverted while a copy is under way",
        broken="Attempts are not numbered, so a copy applies a proposal that its sender knows was refused.",
        source="TR16",
        scenario="tr16_retried_alter_partition",
        swaps=(Swap(Attempts, "answer_again", _as_new),),
    ),
    Mutant(
        number="22",
        name="node epochs refreshed when a proposal is sent again",
        broken="A leader names the newest incarnation of a member, not the one whose fetch earned the place.",
        source="TR10, sub-case",
        scenario="tr10_resent_proposal",
        swaps=(Swap(IsrChannel, "maybe_send", _sends_refreshed, pure=False),),
    ),
)


# 110a, 110b: a sequence that another sender has used, in the controller's answer and in the leader's handling.


def _says_not_which(real: Real, *given: Any) -> AlterPartitionAnswer:
    return replace(real(*given), last_sequence=None)


def _does_not_look(
    real: Real, self: IsrChannel, event: AlterPartitionAnswered, out: list[Effect]
) -> list[TopicPartition]:
    if event.answer.last_sequence is not None:
        real.differs()
        event = replace(event, answer=replace(event.answer, last_sequence=None))
    answer: list[TopicPartition] = real(self, event, out)
    return answer


MUTANTS += (
    Mutant(
        number="110a",
        name="refused sequence without the last one",
        broken="A leader whose count fell behind a forged proposal never learns what to exceed.",
        source="M71",
        tests=("tests/core/test_alter_partition.py", "tests/core/test_isr_channel.py"),
        swaps=(Swap(alter_partition, "_out_of_sequence", _says_not_which),),
    ),
    Mutant(
        number="110b",
        name="last sequence not taken over",
        broken="A leader goes on counting below a forged proposal, and none of its own is looked at again.",
        source="M71",
        tests=("tests/core/test_isr_channel.py",),
        swaps=(Swap(IsrChannel, "answered", _does_not_look, pure=False),),
    ),
)


# 121: a proposal that outlives the leader epoch in which it was made.


def _keeps_what_waits(real: Real, self: IsrChannel, tp: TopicPartition) -> None:
    if tp in self._state.leaders:
        real(self, tp)
    elif tp in self.waiting:
        real.differs()


MUTANTS += (
    Mutant(
        number="121",
        name="proposal not forgotten at a new epoch",
        broken="A leader that is deposed, or elected again, goes on asking for what it proposed in the epoch before.",
        source="M45; TR9",
        swaps=(Swap(IsrChannel, "forget", _keeps_what_waits, pure=False),),
    ),
)
