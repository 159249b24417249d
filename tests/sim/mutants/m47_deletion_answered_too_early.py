"""47: deletions that are answered as complete although an election can undo them."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.isr import FollowerProgress
from strandline.core.log.leader import LeaderReplica
from strandline.core.types import Offset


def _of_the_leader_alone(real: Real, self: LeaderReplica) -> Offset | None:
    return self.log.log_start_offset


def _whatever_it_holds(real: Real, self: LeaderReplica, follower: FollowerProgress) -> bool:
    return True


def _whatever_min_isr_says(real: Real, self: LeaderReplica, offset: Offset) -> bool:
    lowest = self.low_watermark
    if lowest is None or lowest < offset:
        return False
    if not real(self, offset):
        real.differs()
    self.log_start_floor = max(self.log_start_floor, lowest)
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
    Mutant(
        number="47c",
        name="DeleteRecords complete below min ISR",
        broken="A deletion is answered as complete though a replica of the ELR, with any log start, may be elected.",
        source="C100; M57",
        tests=("tests/core/test_delete_records.py::test_below_min_isr_no_deletion_is_complete",),
        profiles=("trim", "swarm"),
        swaps=(Swap(LeaderReplica, "try_complete_deletion", _whatever_min_isr_says, pure=False),),
    ),
)
