"""103: an election from too few reported logs."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import election
from strandline.core.messages import PartitionImage


def _one_less(real: Real, partition: PartitionImage) -> int:
    return max(1, real(partition) - 1)


MUTANTS = (
    Mutant(
        number="103",
        name="one report too few",
        broken="A member leads although the only log that is known may be the one that lost something.",
        source="M65; TR43",
        scenario="tr43_older_copy",
        swaps=(Swap(election, "reports_needed", _one_less),),
    ),
)
