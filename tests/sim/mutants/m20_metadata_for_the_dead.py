"""20: metadata that was addressed to an earlier process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.metadata import MetadataChange, MetadataFollower
from strandline.core.messages import MetadataImage


def _for_any_incarnation(
    real: Real, metadata: MetadataFollower, image: MetadataImage, out: list[Any]
) -> MetadataChange | None:
    ours = metadata._state.node_epoch
    if image.to_node_epoch != ours:
        real.differs()
        image = replace(image, to_node_epoch=ours)
    change: MetadataChange | None = real(metadata, image, out)
    return change


MUTANTS = (
    Mutant(
        number="20",
        name="metadata of a previous process believed",
        broken="A node believes metadata that was addressed to an earlier incarnation of itself.",
        source="KIP-380's class of bugs; TR15",
        scenario="tr15_metadata_for_a_dead_process",
        swaps=(Swap(MetadataFollower, "take", _for_any_incarnation, pure=False),),
    ),
)
