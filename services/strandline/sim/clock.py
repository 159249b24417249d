"""Decides what time a process believes it is: its own monotonic clock, at a rate that is not the world's (A2).

Invariant: a clock never runs backwards; a change of rate takes effect from that moment on.
"""

from __future__ import annotations

RATE_TRUE = 1_000


class Clock:
    """Milliseconds of one machine, at ``rate`` thousandths of the world's speed."""

    __slots__ = ("_since_us", "_start_us", "rate")

    def __init__(self, start_ms: int = 0) -> None:
        self._since_us = 0
        self._start_us = start_ms * 1000
        self.rate = RATE_TRUE

    def ms(self, world_us: int) -> int:
        """What this clock shows."""
        return (self._start_us + (world_us - self._since_us) * self.rate // RATE_TRUE) // 1000

    def set_rate(self, rate: int, world_us: int) -> None:
        """Run at ``rate`` thousandths from now on."""
        self._start_us += (world_us - self._since_us) * self.rate // RATE_TRUE
        self._since_us, self.rate = world_us, rate

    def world_us(self, own_ms: int) -> int:
        """How long ``own_ms`` of this clock last in the world."""
        return own_ms * 1000 * RATE_TRUE // self.rate
