"""What time a process believes it is: its own monotonic clock, at a rate that is not the world's (A2).

Invariant: a clock never runs backwards; a change of rate takes effect from that moment on.
"""

from __future__ import annotations

from strandline.sim.timeline import Timeline

RATE_TRUE = 1_000


class Clock:
    """Milliseconds of one machine, at ``rate`` thousandths of the world's speed."""

    __slots__ = ("_since_us", "_start_us", "_timeline", "rate")

    def __init__(self, timeline: Timeline, start_ms: int = 0) -> None:
        self._timeline = timeline
        self._since_us = 0
        self._start_us = start_ms * 1000
        self.rate = RATE_TRUE

    def us(self) -> int:
        """What this clock shows, in microseconds."""
        return self._start_us + (self._timeline.now_us - self._since_us) * self.rate // RATE_TRUE

    def ms(self) -> int:
        """What this clock shows, in milliseconds."""
        return (self._start_us + (self._timeline.now_us - self._since_us) * self.rate // RATE_TRUE) // 1000

    def set_rate(self, rate: int) -> None:
        """Run at ``rate`` thousandths from now on."""
        world_us = self._timeline.now_us
        self._start_us += (world_us - self._since_us) * self.rate // RATE_TRUE
        self._since_us, self.rate = world_us, rate

    def world_us_of(self, own_us: int) -> int:
        """How long ``own_us`` of this clock last in the world, rounded up: a timer is never early."""
        return -(-own_us * RATE_TRUE // self.rate)
