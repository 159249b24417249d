"""37: a reign goes on with the next epoch of each partition."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import state


def _by_one(real: Real, is_known_of_this_reign: bool) -> int:
    return 1


MUTANTS = (
    Mutant(
        number="37",
        name="no epoch skip",
        broken="A reign gives epochs that a transaction which the store forgot may have given.",
        source="C37; TR28",
        tests=("tests/core/test_reign_begins.py",),
        scenario="tr28_epochs_skip",
        profiles=("rollback",),
        swaps=(Swap(state, "_step", _by_one),),
    ),
)
