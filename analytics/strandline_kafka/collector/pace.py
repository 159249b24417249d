"""How often a cluster is looked at, so that looking stays cheap for its brokers (A25).

The period doubles while an answer takes longer than half of it, and halves again, down to what was asked for, as soon
as every answer would fit into half of the shorter one.
"""

from __future__ import annotations

LEAST_MS = 500
MOST_MS = 60_000
PARTITIONS_AT_LEAST = 1_000
"""Up to so many partitions the period is `LEAST_MS`; beyond them it grows in proportion, so that the partitions asked
about in a second, and with them the work of a broker, do not."""


def usual_period_ms(partitions: int) -> int:
    """The period where none is asked for."""
    return min(MOST_MS, max(LEAST_MS, LEAST_MS * partitions // PARTITIONS_AT_LEAST))


class Pace:
    """The period from one look to the next."""

    def __init__(self, wanted_ms: int) -> None:
        self._wanted_ms = wanted_ms
        self.period_ms = wanted_ms

    def after(self, longest_ms: float) -> None:
        """A look is over, whose slowest answer took so long."""
        if longest_ms > self.period_ms / 2:
            self.period_ms = max(self.period_ms, min(2 * self.period_ms, MOST_MS))
        elif self.period_ms > self._wanted_ms and longest_ms <= self.period_ms / 4:
            self.period_ms = max(self._wanted_ms, self.period_ms // 2)
