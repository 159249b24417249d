"""Which measurements are believed: one during which the host took more than 3 % of the processors is repeated once.

Invariant: a measurement that stays above is dropped and counted, never silently kept, and never replaced for any
reason but steal time: a slow round is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

BELIEVABLE_STEAL_PERCENT = 3.0


@dataclass(slots=True)
class Steady:
    """Counts what was repeated and names what was dropped."""

    believable_percent: float = BELIEVABLE_STEAL_PERCENT
    repeated: int = 0
    dropped: list[str] = field(default_factory=list)

    def measured(self, name: str, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """The figures of ``measure``, or of its repetition; None when the host disturbed both.

        The figures must have ``steal_percent``.
        """
        figures = measure()
        if figures["steal_percent"] <= self.believable_percent:
            return figures
        self.repeated += 1
        figures = measure()
        if figures["steal_percent"] <= self.believable_percent:
            return figures
        self.dropped.append(name)
        return None
