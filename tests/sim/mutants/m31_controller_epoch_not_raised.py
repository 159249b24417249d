"""31: a reign goes on with the controller epoch of the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control.controller import ControllerCore
from strandline.core.control.events import ControllerStarted


def _staying(real: Real, self: ControllerCore, event: ControllerStarted) -> Any:
    if self._state is not None:
        real.differs()
        header = self._state.header
        self._state = replace(self._state, header=replace(header, controller_epoch=header.controller_epoch - 1))
    return real(self, event)


MUTANTS = (
    Mutant(
        number="31",
        name="controller epoch not raised",
        broken="A reign begins with the controller epoch of the reign before it.",
        source="C18",
        profiles=("controllers",),
        swaps=(Swap(ControllerCore, "_start", _staying, pure=False),),
    ),
)
