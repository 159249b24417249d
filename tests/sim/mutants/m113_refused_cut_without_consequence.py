"""113a, 113b: a follower that refuses to truncate, and does not report it or the report has no effect."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import leadership
from strandline.core.log.proposals import LogReporter
from strandline.core.types import TopicPartition


def _nothing_follows(real: Real, *given: Any) -> None:
    real.differs()


def _keeps_it_to_itself(real: Real, self: LogReporter, tp: TopicPartition) -> Any:
    key = real(self, tp)
    return None if key is not None and key.refused_cut_to is not None else key


MUTANTS = (
    Mutant(
        number="113a",
        name="refused cut without consequence",
        broken="A leader that lacks committed records goes on, although a member that holds them reported it.",
        source="M69; TR46",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(leadership, "_refuses_to_cut", _nothing_follows, pure=False),),
    ),
    Mutant(
        number="113b",
        name="refused cut not reported",
        broken="A follower that holds more than its leader stops there and does not report it.",
        source="M69; TR46",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(LogReporter, "_key", _keeps_it_to_itself),),
    ),
)
