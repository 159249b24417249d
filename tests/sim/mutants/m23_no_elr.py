"""23: the last member of an ISR, regardless of the state of its disk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import election, leadership
from strandline.core.control.draft import Draft
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId


def _nobody(real: Real, *_: Any, **__: Any) -> tuple[NodeId, ...]:
    return ()


def _last_one_stays(
    real: Real,
    draft: Draft,
    partition: PartitionImage,
    leaving: frozenset[NodeId],
    cause: str,
    unclean: Collection[NodeId] = (),
) -> None:
    if not partition.isr or set(partition.isr) - leaving:
        real(draft, partition, leaving, cause, unclean)
        return
    real.differs()
    if partition.leader is not None:
        draft.put_partition(replace(partition, leader=None), cause=cause, new_reign=True)


MUTANTS = (
    Mutant(
        number="23",
        name="page-cache acknowledgements without an ELR",
        broken="Nobody out of the ISR is remembered as complete, and its last member is elected, clean or not.",
        source="KIP-966; TR11",
        scenario="tr11_last_replica_standing",
        swaps=(
            Swap(election, "elr_after", _nobody),
            Swap(leadership, "_leave", _last_one_stays, pure=False),
        ),
        profiles=("page-cache",),
    ),
)
