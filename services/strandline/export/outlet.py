"""What takes numbered events from the pipeline: files for analysis, or a short local record for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from strandline.export.counters import OutletStats
from strandline.export.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Rows that an outlet had to give up: their numbers lie in this range, so many of each type."""

    first_seq: int
    last_seq: int
    by_type: dict[str, int]


class Outlet(Protocol):
    """Called by the writer thread only. Nothing here may raise for a destination that fails."""

    @property
    def stats(self) -> OutletStats:
        """What became of the events so far."""
        ...

    def write(self, run: Run) -> None:
        """Take events in the order of their numbers."""
        ...

    def tend(self, mono_us: int) -> list[Lost]:
        """Do what is due (roll, retry). Returns what was given up since the last time."""
        ...

    def close(self, mono_us: int) -> None:
        """Write what is left, as far as the destination lets."""
        ...
