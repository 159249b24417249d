"""32: what a transaction decided is answered and published before the store has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.controller.driver import ControllerDriver
from strandline.core.control.events import Commit, ControllerEffect
from strandline.runtime.driver import Driver


def _at_once(real: Real, self: ControllerDriver, effects: Sequence[ControllerEffect]) -> Any:
    commits = [effect for effect in effects if isinstance(effect, Commit)]
    if commits:
        real.differs()
        self._pending += commits
        self._work.set()
    return Driver.carry_out(self, [effect for effect in effects if not isinstance(effect, Commit)])


MUTANTS = (
    Mutant(
        number="32",
        name="answer before the append",
        broken="The controller answers and publishes a change before it is stored.",
        source="C9; M55",
        profiles=("controllers",),
        swaps=(Swap(ControllerDriver, "carry_out", _at_once, pure=False),),
    ),
)
