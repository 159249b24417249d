"""101: the first replica that returns leads."""

from __future__ import annotations

from dataclasses import replace

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import election
from strandline.core.control.election import Elected, IsActive
from strandline.core.messages import PartitionImage


def _trusts_everybody(real: Real, partition: PartitionImage, is_active: IsActive) -> Elected | None:
    answer: Elected | None = real(replace(partition, unproven=()), is_active)
    return answer


MUTANTS = (
    Mutant(
        number="101",
        name="unproven member elected",
        broken="An election takes a member of the ISR that started again for one that is known to be complete.",
        source="M64; TR42",
        scenario="tr42_lost_tail_unnoticed",
        swaps=(Swap(election, "elect", _trusts_everybody),),
    ),
)
