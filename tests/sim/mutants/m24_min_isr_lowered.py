"""24: a lower min ISR, and an ELR from before."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import election
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId


def _as_it_was(real: Real, partition: PartitionImage, min_isr: int) -> tuple[NodeId, ...]:
    return partition.elr


MUTANTS = (
    Mutant(
        number="24",
        name="ELR kept when min ISR is lowered",
        broken="Min ISR is lowered to the size of the ISR, and the ELR stays as it was while the high watermark moves.",
        source="KIP-966; TR19",
        scenario="tr19_min_isr_lowered",
        swaps=(Swap(election, "elr_with_min_isr", _as_it_was),),
    ),
)
