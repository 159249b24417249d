"""75: the time that a coordinator needs to load counts against the members."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.coordinator.machine import Context
from strandline.core.groups.machine import GroupMachine


def _begins_in_the_past(real: Real, self: GroupMachine, context: Context) -> None:
    real.differs()
    known = dict(self.timers.session_ends)
    real(self, context)
    for member in self.timers.session_ends:
        self.timers.session_ends[member] = known.get(member, context.now_ms)


MUTANTS = (
    Mutant(
        number="75",
        name="a load gives no time",
        broken="Members that could not reach a coordinator are removed for their silence.",
        source="G8",
        tests=("tests/core/groups/test_heartbeats.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(GroupMachine, "excuse", _begins_in_the_past, pure=False),),
    ),
)
