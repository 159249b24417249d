"""R9: a change of the ISR takes effect at the wrong moment."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.isr import IsrState
from strandline.core.types import NodeId


def _committed(real: Real, state: IsrState) -> frozenset[NodeId]:
    return frozenset(state.committed)


def _proposed(real: Real, state: IsrState) -> frozenset[NodeId]:
    if state.pending is None or len(state.pending.members) >= len(state.committed):
        found: frozenset[NodeId] = real(state)
        return found
    return state.pending.members


MUTANTS = (
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
