"""R5: a new leader in the old epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control.draft import Draft
from strandline.core.messages import PartitionImage


def _same_epoch(real: Real, draft: Draft, changed: PartitionImage, **why: Any) -> PartitionImage:
    put: PartitionImage = real(draft, changed, **why)
    before = draft.base.partition(changed.tp)
    if before is None or before.leader is None or put.leader_epoch == before.leader_epoch:
        return put
    real.differs()
    unbumped = replace(put, leader_epoch=before.leader_epoch)
    draft._partitions[changed.tp] = unbumped
    return unbumped


MUTANTS = (
    Mutant(
        number="R5",
        name="election without a new epoch",
        broken="A replacement leads in the epoch of that leader; only the partition epoch rises.",
        source="KIP-101, M34",
        scenario="tr21_same_epoch_after_restart",
        swaps=(Swap(Draft, "put_partition", _same_epoch, pure=False),),
    ),
)
