"""R52: the entry of a partition that returns to the member it is asked back from is lost."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.groups.group import Owners
from strandline.core.groups.records import CurrentValue


def _patches(real: Real, self: Owners, member_id: str, before: CurrentValue | None, after: CurrentValue | None) -> None:
    for tp, _ in before.held if before else ():
        self._owners.pop(tp, None)
    for tp, epoch in after.held if after else ():
        self._owners[tp] = (member_id, epoch)
    if before is None or after is None:
        return
    for tp in {each.tp for each in before.revoking} & {each.tp for each in after.assigned}:
        real.differs()
        del self._owners[tp]


MUTANTS = (
    Mutant(
        number="R52",
        name="owner of a returned partition lost",
        broken="What was being revoked is taken out of the map although the member was given it again.",
        source="G18; KAFKA-16147",
        tests=("tests/core/groups/test_fold.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Owners, "replace", _patches, pure=False),),
    ),
)
