"""Decides when a record is committed: how far the high watermark of a leader may move.

Invariant: HW = min(own vote, remote LEO of all that could be elected or are about to be members),
never above the leader's LEO, never back on a leader, never while the committed ISR is below min ISR.
Sources: M6, M16-M19; KIP-497; KAFKA-15583.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.types import Offset


def candidate(
    own_vote: Offset, remote_leos: Iterable[Offset | None], *, committed_isr_size: int, min_isr: int
) -> Offset | None:
    """The offset up to which all that count have the log; None while it must not move.

    Args:
        own_vote: the leader's LEO that counts (durable under ``fsync``).
        remote_leos: of every follower in the maximal ISR, and of every eligible one outside it that is
            caught up (M16); None for one that has not fetched in this leader epoch.
        committed_isr_size: members the controller committed, the leader included (not the maximal ISR).
        min_isr: effective min.insync.replicas of this partition epoch (M57).
    """
    # Members that leave below min ISR stay in the ELR and may be elected, so a HW that moved without them would commit
    # what a clean election can lose (M18, KAFKA-15583).
    if committed_isr_size < min_isr:
        return None
    lowest = own_vote
    for leo in remote_leos:
        # It has not fetched in this leader epoch: it may still have to cut what an earlier leader counted (M5, TR8).
        if leo is None:
            return None
        lowest = min(lowest, leo)
    return lowest
