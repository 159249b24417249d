"""The time as a process sees it: its own monotonic clock, whose rate differs from the world's (A2).

Invariant: a clock never runs backwards; a change of rate takes effect from that moment on.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

# ---- timeline
# Decides what happens next: the planned event with the earliest time, and among equal times the one planned first.
#
# Invariant: time never goes back, and nothing happens that was not planned; so a run is a function of what plans it.


class Timeline:
    """Virtual time in microseconds, and everything that is due in it."""

    __slots__ = ("_due", "_order", "happened", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.happened = 0
        self._order = 0
        self._due: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time_us: int, action: Callable[..., None], *given: Any) -> None:
        """Plan something for a time that is not in the past."""
        self._order += 1
        heappush(self._due, (time_us if time_us > self.now_us else self.now_us, self._order, action, given))

    def after(self, delay_us: int, action: Callable[..., None], *given: Any) -> None:
        """Plan something for later."""
        self._order += 1
        heappush(self._due, (self.now_us + delay_us, self._order, action, given))

    def run_until(self, end_us: int) -> None:
        """Let everything happen that is due before ``end_us``."""
        due = self._due
        while due and due[0][0] < end_us:
            self.now_us, _, action, given = heappop(due)
            self.happened += 1
            action(*given)
        self.now_us = max(self.now_us, end_us)


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
        """The world time that ``own_us`` of this clock take, rounded up: a timer is never early."""
        return -(-own_us * RATE_TRUE // self.rate)
