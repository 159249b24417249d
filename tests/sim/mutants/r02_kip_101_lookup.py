"""R2: the end of an epoch without the epoch that ends there."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.truncation import EpochCache
from strandline.core.types import EpochEnd, LeaderEpoch, Offset


def _end_alone(real: Real, cache: EpochCache, epoch: LeaderEpoch | None, leo: Offset) -> EpochEnd | None:
    found: EpochEnd | None = real(cache, epoch, leo)
    return None if found is None or epoch is None else EpochEnd(epoch, found.end_offset)


MUTANTS = (
    Mutant(
        number="R2",
        name="KIP-101 lookup",
        broken="Asked for an epoch that it never had, a leader answers as if it had had it: the end, not whose end.",
        source="KIP-279, KAFKA-6361; TR3",
        scenario="tr03_leader_epoch",
        swaps=(Swap(EpochCache, "end_offset_for", _end_alone),),
    ),
)
