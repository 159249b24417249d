"""114: HW and recovery point, not written until the next checkpoint."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.effects import Effect
from strandline.core.log.node import NodeCore


def _later(real: Real, self: NodeCore, out: list[Effect]) -> None:
    if self._checkpoint_now:
        real.differs()
    self._checkpoint_now = False
    real(self, out)


MUTANTS = (
    Mutant(
        number="114",
        name="HW not saved when it matters",
        broken="A new leader, or one below min ISR, leaves its HW to a checkpoint seconds later.",
        source="M68",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(NodeCore, "_make_durable", _later, pure=False),),
    ),
)
