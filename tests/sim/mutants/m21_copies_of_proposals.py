"""21 and 22: proposals that are sent more than once."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control.alter_partition import Attempts
from strandline.core.log.effects import Effect
from strandline.core.log.proposals import IsrChannel
from strandline.core.messages import IsrMember, ProposedIsr


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


MUTANTS = (
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
