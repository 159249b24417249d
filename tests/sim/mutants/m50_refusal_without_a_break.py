"""50: a refused connection counts although this standby's own stream never broke."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.reigns.events import Holder
from strandline.core.reigns.lease import KeyTaking


def _whenever(real: Real, self: KeyTaking, holder: Holder | None, now_ms: int) -> bool:
    if holder is not None and self._broken_token != holder.token:
        real.differs()
        self.lost(holder.token, now_ms)
    return bool(real(self, holder, now_ms))


MUTANTS = (
    Mutant(
        number="50",
        name="refusal trusted without a broken stream",
        broken="A standby looks at the active controller, and takes its key, without having lost its stream to it.",
        source="C19",
        tests=(
            "tests/core/test_reign.py::test_refusal_without_a_broken_stream_takes_nothing",
            "tests/core/test_reign.py::test_reached_controller_keeps_its_key",
        ),
        profiles=("controllers",),
        swaps=(Swap(KeyTaking, "look_due", _whenever, pure=False),),
    ),
)
