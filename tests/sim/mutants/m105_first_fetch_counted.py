"""105a, 105b: a follower counted before it stored the epoch, through its leader's fault or its own."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.follower import FollowerReplica
from strandline.core.log.leader import LeaderReplica


def _counts_at_once(real: Real, self: LeaderReplica, replica: Any) -> bool:
    if real(self, replica):
        real.differs()
    return False


def _agrees_unasked(real: Real, self: FollowerReplica) -> bool:
    return True


MUTANTS = (
    Mutant(
        number="105a",
        name="first fetch of an epoch counted",
        broken="With truncation=fetch a follower is counted before it wrote down that it agrees with this leader.",
        source="M66",
        tests=("tests/core/test_leader_fetch.py",),
        swaps=(Swap(LeaderReplica, "only_reconciles", _counts_at_once, pure=False),),
    ),
    Mutant(
        number="105b",
        name="agreement written before the leader's answer",
        broken="A follower that asks by fetching writes down that it agrees before its leader answered.",
        source="M66",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(FollowerReplica, "agrees_before_fetching", _agrees_unasked),),
    ),
)
