"""36: a new reign elects before it has heard from the live replicas."""

from __future__ import annotations

from collections.abc import Callable

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control.doubt import Doubt
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId


def _nobody(
    real: Real, self: Doubt, partition: PartitionImage, is_unfenced: Callable[[NodeId], bool]
) -> tuple[NodeId, ...]:
    return ()


MUTANTS = (
    Mutant(
        number="36",
        name="election while a live replica is unheard",
        broken="A reign elects although a live replica may know of a transaction that the store forgot.",
        source="C37; TR28",
        tests=("tests/core/test_reign_begins.py",),
        scenario="tr28_election_in_doubt",
        profiles=("rollback",),
        swaps=(Swap(Doubt, "waits_for", _nobody),),
    ),
)
