"""R4: min.insync.replicas as advice."""

from __future__ import annotations

from collections.abc import Iterable

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log import high_watermark
from strandline.core.log.leader import LeaderReplica
from strandline.core.types import Offset


def _whatever_the_size(
    real: Real, own_vote: Offset, remote_leos: Iterable[Offset | None], *, committed_isr_size: int, min_isr: int
) -> Offset | None:
    found: Offset | None = real(own_vote, remote_leos, committed_isr_size=min_isr, min_isr=min_isr)
    return found


def _never(real: Real, leader: LeaderReplica) -> bool:
    return False


MUTANTS = (
    Mutant(
        number="R4",
        name="commit and acknowledge below min ISR",
        broken="The high watermark moves, and acks=all is answered, while the ISR has fewer than min.insync.replicas.",
        source="KIP-966, KAFKA-15583; M18, M47, TR11",
        scenario="tr11_last_replica_standing",
        swaps=(
            Swap(high_watermark, "candidate", _whatever_the_size),
            Swap(LeaderReplica, "is_under_min_isr", _never),
        ),
    ),
)
