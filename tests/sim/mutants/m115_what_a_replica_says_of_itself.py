"""115, 116: a replica's report of its own HW."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log import follower
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.types import Offset

_TESTS = ("tests/core/test_follower_truncation.py", "tests/core/test_follower_errors.py")


def _none_if_unknown(real: Real, log: ReplicaLog, offset: Offset) -> int | None:
    known: int | None = real(log, offset)
    return known or 0


def _whatever_it_is(real: Real, log: ReplicaLog) -> Offset | None:
    return log.hw


MUTANTS = (
    Mutant(
        number="115",
        name="unknown loss reported as none",
        broken="A replica that does not know its own HW says that a cut took no committed record.",
        source="M41; state events",
        tests=_TESTS,
        swaps=(Swap(follower, "_committed_cut", _none_if_unknown),),
    ),
    Mutant(
        number="116",
        name="consumers see the end go back",
        broken="A follower that cut shows consumers an HW below the one that it showed before.",
        source="M1",
        tests=_TESTS,
        swaps=(Swap(ReplicaLog, "expose_hw", _whatever_it_is),),
    ),
)
