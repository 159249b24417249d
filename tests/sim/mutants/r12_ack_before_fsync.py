"""R12: records in the page cache count as written."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.replica_log import ReplicaLog
from strandline.core.types import Offset


def _log_end(real: Real, log: ReplicaLog) -> Offset:
    return log.leo


def _unless_cutting(real: Real, log: ReplicaLog) -> bool:
    return not log.cutting


MUTANTS = (
    Mutant(
        number="R12a",
        name="the leader votes before its fsync",
        broken="With durability=fsync a leader counts records of its own that a loss of power takes away.",
        source="M55",
        scenario="tr21_same_epoch_after_restart",
        swaps=(Swap(ReplicaLog, "vote", _log_end),),
    ),
    Mutant(
        number="R12b",
        name="a follower reports before its fsync",
        broken="With durability=fsync a follower fetches from an offset below which it may yet lose records.",
        source="M54",
        scenario="tr02_fsync",
        swaps=(Swap(ReplicaLog, "is_settled", _unless_cutting),),
    ),
)
