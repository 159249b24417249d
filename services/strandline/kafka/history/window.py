"""Which part of a history becomes an export: everything, or the events of one window.

What lies before is replayed all the same, so that the window begins with the state of every partition.
"""

from __future__ import annotations

from typing import NamedTuple

_FOREVER_US = 1 << 62


class Window(NamedTuple):
    """[start_us, end_us), in microseconds since 1970 by the clock of the writer."""

    start_us: int = 0
    end_us: int = _FOREVER_US

    @property
    def has_start(self) -> bool:
        """Whether something may lie before it."""
        return self.start_us > 0

    def holds(self, at_us: int) -> bool:
        """Whether a moment lies within."""
        return self.start_us <= at_us < self.end_us


EVERYTHING = Window()
