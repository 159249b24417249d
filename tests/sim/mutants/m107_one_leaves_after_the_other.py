"""107: sessions that end together, ended one by one."""

from __future__ import annotations

from collections.abc import Collection

from mutants.mutant import Mutant, Real, Swap

from strandline.core import leadership
from strandline.core.draft import Draft
from strandline.core.types import NodeId


def _nobody_waits(real: Real, draft: Draft, due: Collection[NodeId], silent: Collection[NodeId]) -> set[NodeId]:
    return set()


MUTANTS = (
    Mutant(
        number="107",
        name="the dead leave one after the other",
        broken="After a blackout the last members to fall silent are the only ones that are known to be complete.",
        source="M64",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(leadership, "held_back", _nobody_waits),),
    ),
)
