"""45: a recovery from two branches believes every member of either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import recovery
from strandline.core.control.election import in_assignment_order
from strandline.core.messages import PartitionImage


def _either(real: Real, highest: PartitionImage, latest: Sequence[PartitionImage]) -> PartitionImage:
    isr = in_assignment_order(highest, {member for each in latest for member in each.isr})
    return replace(highest, leader=None, isr=isr, elr=(), unproven=isr)


MUTANTS = (
    Mutant(
        number="45",
        name="recovery takes the union of ISRs",
        broken="A member of the ISR of one branch may be elected, and lacks what the other branch committed.",
        source="C38",
        tests=("tests/core/test_branches.py::test_an_isr_that_branches_disagree_upon_is_what_they_share",),
        profiles=("rollback",),
        swaps=(Swap(recovery, "_agreed", _either),),
    ),
)
