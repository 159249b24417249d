"""R84: a copy of a heartbeat that comes late is taken for a new one."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.groups.timers import Timers


def _never_late(real: Real, self: Timers, member: tuple[str, str], sequence: int | None) -> bool:
    real.differs()
    return False


MUTANTS = (
    Mutant(
        number="R84",
        name="late copies of heartbeats are taken",
        broken="A member gives up, by a report from before it was given it, what it still reads (TR41).",
        source="G19",
        tests=("tests/core/groups/test_commits.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Timers, "is_late_heartbeat", _never_late, pure=False),),
    ),
)
