"""105: a follower counted before it wrote down in which epoch."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.leader import LeaderReplica


def _counts_at_once(real: Real, self: LeaderReplica, replica: Any) -> bool:
    if real(self, replica):
        real.differs()
    return False


MUTANTS = (
    Mutant(
        number="105",
        name="first fetch of an epoch counted",
        broken="With truncation=fetch a follower is counted before it wrote down that it agrees with this leader.",
        source="M66",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(LeaderReplica, "only_reconciles", _counts_at_once, pure=False),),
    ),
)
