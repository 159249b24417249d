"""The journal of a simulated disk: the services' own (`storage.journal`), over two files in memory.

Invariant: whatever survives of what was not synced, a loss of power takes no frame that was durable (M58); so it may
come between a frame of one file and the next, which is in the other.
"""

from __future__ import annotations

from pathlib import Path

from strandline.sim.draws import Draw
from strandline.storage.journal import HEAD_BYTES, FoundJournal, Journal, judge, read_file

_FRAMES = 5
"""After how many frames the files take turns: few, so that every run does it often."""


class MemoryJournal(Journal):
    """Frames without a payload: what they hold is kept by the simulated disk. ``at_least`` was durable once."""

    def __init__(self, first: bytes = b"", second: bytes = b"", *, at_least: int = 0) -> None:
        is_new = not first and not second
        found = FoundJournal(exists=False) if is_new else judge((read_file(first), read_file(second)), at_least)
        super().__init__(Path(), found, _FRAMES * HEAD_BYTES)
        self._written, self._synced = [first, second], [first, second]

    def open_files(self) -> None:
        """They are there."""
        self._fds = [0, 1]

    def write_file(self, buffers: list[bytes]) -> None:
        """Into the page cache."""
        self._written[self._active] += b"".join(buffers)

    def sync_file(self) -> None:
        """All that was written survives."""
        self._synced[self._active] = self._written[self._active]

    def cut_file(self, size_bytes: int) -> None:
        """In the page cache alone."""
        self._written[self._active] = self._written[self._active][:size_bytes]

    def save(self, *, durable: bool) -> None:
        """Write what a step saved, as `storage.checkpoints` does; its files are written at once."""
        self.append(b"", durable=durable or self.is_full)
        if self.is_full:
            self.complete = self.sequence

    def lose_power(self, draw: Draw) -> MemoryJournal:
        """What is left: of each file what was synced, or any part of what was written since."""
        left = []
        for written, synced in zip(self._written, self._synced, strict=True):
            kept = len(synced) if written.startswith(synced) else 0
            left.append(draw.choose((synced, written[: draw.between(kept, len(written))])))
        return MemoryJournal(*left, at_least=self.durable)
