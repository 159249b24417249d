"""113: a follower that refuses to cut, and nobody who minds."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core import report_intake


def _nothing_follows(real: Real, *given: Any) -> None:
    real.differs()


MUTANTS = (
    Mutant(
        number="113",
        name="refused cut without consequence",
        broken="A leader that lacks committed records goes on, although a member that holds them reported it.",
        source="M69; TR46",
        tests=("tests/core/test_reported_elections.py", "tests/core/test_replica_log_reports.py"),
        swaps=(Swap(report_intake, "_refuses_to_cut", _nothing_follows, pure=False),),
    ),
)
