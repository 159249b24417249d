"""112: who is unproven, forgotten as soon as something else of the partition changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.draft import Draft
from strandline.core.messages import PartitionImage


def _forgets(real: Real, self: Draft, changed: PartitionImage, **how: Any) -> PartitionImage:
    before = self.base.partition(changed.tp)
    kept = before is not None and set(before.unproven) & set(changed.unproven)
    if kept:
        real.differs()
        changed = replace(changed, unproven=tuple(n for n in changed.unproven if n not in kept))
    answer: PartitionImage = real(self, changed, **how)
    return answer


MUTANTS = (
    Mutant(
        number="112",
        name="unproven member forgotten",
        broken="With the next change of a partition its unproven members count as proven.",
        source="M64",
        swaps=(Swap(Draft, "put_partition", _forgets, pure=False),),
    ),
)
