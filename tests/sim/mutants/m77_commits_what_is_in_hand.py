"""77: a consumer that commits by itself commits what its user still works on."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.client.groups.committing import Positions
from strandline.client.groups.group_commits import GroupCommits


def _all_that_was_given(real: Real, self: GroupCommits) -> Positions:
    real.differs()
    return self.given()


MUTANTS = (
    Mutant(
        number="77",
        name="what is in hand is committed by itself",
        broken="Records that were being worked on at a crash are never given again.",
        source="U4",
        tests=("tests/client/test_group_offsets.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(GroupCommits, "worked_on", _all_that_was_given, pure=False),),
    ),
)
