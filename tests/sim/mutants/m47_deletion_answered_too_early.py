"""47: deletions that are answered as complete although an election can undo them."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.leader import LeaderReplica
from strandline.core.progress import FollowerProgress
from strandline.core.types import Offset


def _of_the_leader_alone(real: Real, self: LeaderReplica) -> Offset | None:
    return self.log.log_start_offset


def _whatever_it_holds(real: Real, self: LeaderReplica, follower: FollowerProgress) -> bool:
    return True


MUTANTS = (
    Mutant(
        number="47",
        name="DeleteRecords answered before the ISR",
        broken="A leader answers a deletion as complete when it alone has deleted.",
        source="C100; TR34",
        scenario="tr34_deletion_of_the_leader_alone",
        profiles=("trim", "swarm"),
        swaps=(Swap(LeaderReplica, "low_watermark", _of_the_leader_alone),),
    ),
    Mutant(
        number="47b",
        name="the ISR grows below a completed deletion",
        broken="A follower may join the ISR with a log start below what was answered as deleted.",
        source="C100; M44",
        tests=("tests/core/test_delete_records.py::test_nobody_joins_below_a_completed_deletion",),
        profiles=("trim", "swarm"),
        swaps=(Swap(LeaderReplica, "_has_deleted", _whatever_it_holds),),
    ),
)
