"""33, 48: sessions that end for a time in which nobody could be heard."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control.controller import ControllerCore
from strandline.core.control.events import ControllerStarted
from strandline.core.control.nodes import Sessions


def _due_at_once(real: Real, self: ControllerCore, event: ControllerStarted) -> Any:
    effects = real(self, event)
    for session in self._sessions._sessions.values():
        real.differs()
        session.deadline_ms = event.now_ms
    return effects


def _staying(real: Real, self: Sessions, now_ms: int, closed_ms: int) -> None:
    real.differs()


MUTANTS = (
    Mutant(
        number="33",
        name="no sessions at a take-over",
        broken="A new reign grants no session to the nodes of the one before.",
        source="C21; M59",
        profiles=("controllers", "store-trouble"),
        swaps=(Swap(ControllerCore, "_start", _due_at_once, pure=False),),
    ),
    Mutant(
        number="48",
        name="sessions not moved after a time unsure",
        broken="Deadlines of sessions stay where they were while the controller served nobody.",
        source="C14; TR30",
        tests=("tests/core/test_sessions.py::test_minute_without_a_store_fences_nobody",),
        scenario="tr30_store_is_away_for_a_minute",
        profiles=("store-trouble", "controllers"),
        swaps=(Swap(Sessions, "resume", _staying, pure=False),),
    ),
)
