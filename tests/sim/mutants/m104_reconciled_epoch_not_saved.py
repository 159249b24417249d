"""104: the reconciled epoch, kept only in memory."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.effects import Effect
from strandline.core.log.state import NodeState


def _forgets(real: Real, self: NodeState, out: list[Effect]) -> None:
    if self.unsaved_reconciled:
        real.differs()
    self.unsaved_reconciled.clear()


MUTANTS = (
    Mutant(
        number="104",
        name="reconciled epoch not saved",
        broken="A replica is counted in an epoch that its disk does not know of.",
        source="M66",
        scenario="tr45_fork_and_reconciled_epoch",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(NodeState, "save_reconciled", _forgets, pure=False),),
    ),
)
