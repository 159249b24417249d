"""102: logs compared by the epoch of their last record and their length."""

from __future__ import annotations

from collections.abc import Sequence

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import election
from strandline.core.messages import ReplicaLogInfo


def _last_epoch_then_length(real: Real, logs: Sequence[ReplicaLogInfo]) -> int:
    return max(range(len(logs)), key=lambda n: (logs[n].epochs[-1].epoch if logs[n].epochs else -1, logs[n].leo))


MUTANTS = (
    Mutant(
        number="102",
        name="logs compared as in Raft",
        broken="Of two reported logs the one whose last record is of the newer epoch leads, then the longer one.",
        source="M65; TR45",
        scenario="tr45_fork_and_reconciled_epoch",
        swaps=(Swap(election, "most_complete", _last_epoch_then_length),),
    ),
)
