"""76: a consumer goes on giving records when the coordinator may have given its partitions to another."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.client.groups.member import Member


def _for_ever(real: Real, self: Member, now_ms: float) -> bool:
    real.differs()
    return True


MUTANTS = (
    Mutant(
        number="76",
        name="a client reads on after its lease",
        broken="Two members work on the records of one partition.",
        source="G22",
        tests=("tests/client/test_group_members.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Member, "has_lease", _for_ever, pure=False),),
    ),
)
