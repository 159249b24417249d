"""The clocks: monotonic ms for the core, wall-clock ms for retention and for people.

Invariant: the core gets only monotonic time, so a clock that is set back does not affect it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

Clock = Callable[[], int]
"""Returns ms."""


def monotonic_ms() -> int:
    """Milliseconds of a clock that never runs backwards, from an arbitrary zero."""
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
    """A process's clocks, in microseconds; in the simulator each process has its own."""

    mono_us: Callable[[], int]
    wall_us: Callable[[], int]


SYSTEM_CLOCKS = Clocks(mono_us, wall_us)
