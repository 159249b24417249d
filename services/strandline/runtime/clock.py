"""What time it is: monotonic ms for the core, wall-clock ms for retention and for people.

Invariant: the core is only ever given monotonic time; a clock that is set back never reaches it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

Clock = Callable[[], int]
"""Returns ms."""


def monotonic_ms() -> int:
    """Milliseconds of a clock that never runs backwards; its zero means nothing."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def mono_us() -> int:
    """Microseconds of a clock that never runs backwards, for differences that are shown to people."""
    return time.monotonic_ns() // 1_000


def wall_us() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1_000


class Clocks(NamedTuple):
    """What shows a process its time in microseconds; the simulator gives each of its processes other ones."""

    mono_us: Callable[[], int]
    wall_us: Callable[[], int]


SYSTEM_CLOCKS = Clocks(mono_us, wall_us)
