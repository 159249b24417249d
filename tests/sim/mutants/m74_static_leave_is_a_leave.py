"""74: a static member that leaves for a restart gets the group a new epoch."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.groups import heartbeats
from strandline.core.groups.group import Changes


def _raises(real: Real, changes: Changes, member_id: str) -> None:
    real.differs()
    real(changes, member_id)
    changes.raise_epoch()


MUTANTS = (
    Mutant(
        number="74",
        name="static leave raises the epoch",
        broken="A restart of a static member leads to a new target.",
        source="G21; KIP-345",
        tests=("tests/core/groups/test_static_members.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(heartbeats, "step_aside", _raises, pure=False),),
    ),
)
