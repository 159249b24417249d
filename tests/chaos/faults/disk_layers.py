"""What a loss of power leaves of one file: the synced bytes, and nothing that was written since.

Invariant: `undo` restores the file exactly as it was when the last finished sync was *issued*; bytes written while that
sync was running are not covered. After a sync that failed its bytes stay readable, and no later sync saves them: the
kernel has marked their pages clean (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020).
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import weakref
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

PAGE_BYTES = 4096
_numbers = count(2)


@dataclass(slots=True, eq=False)
class Layer:
    """The file's content when a sync was issued, as far as later writes changed it."""

    size_before: int | None
    """None once a later sync has made a later size durable."""
    before: dict[int, bytes] = field(default_factory=dict)
    """Page number to its content before the first change; shorter than a page at the end of the file."""
    written_bytes: int = 0
    lost: bool = False
    """Whether the sync that should have covered this layer failed."""


class StoredFile:
    """One file's bytes, in an anonymous file of a folder outside of the mount."""

    def __init__(self, folder: Path, mode: int) -> None:
        self.number = next(_numbers)
        self.mode = mode
        self.changed_ns = time.time_ns()
        self.size = 0
        self.failed_syncs = 0
        """Since the power last went: what a later sync promises of this file is void."""
        self._fd, name = tempfile.mkstemp(dir=folder)
        os.unlink(name)
        weakref.finalize(self, os.close, self._fd)
        self._layers = [Layer(size_before=0)]

    def read(self, size: int, offset: int) -> bytes:
        """Bytes as a process reads them, durable or not."""
        return os.pread(self._fd, size, offset)

    def write(self, data: bytes, offset: int) -> int:
        """Writes, and keeps what was there."""
        self._remember(min(offset, self.size), offset + len(data))
        written = os.pwrite(self._fd, data, offset)
        self._layers[-1].written_bytes += written
        self.size = max(self.size, offset + written)
        self.changed_ns = time.time_ns()
        return written

    def truncate(self, size: int) -> None:
        """Truncates or extends, and keeps what was there."""
        self._remember(min(size, self.size), max(size, self.size))
        os.ftruncate(self._fd, size)
        self._layers[-1].written_bytes += abs(self.size - size)
        self.size = size
        self.changed_ns = time.time_ns()

    def _remember(self, start: int, end: int) -> None:
        before = self._layers[-1].before
        for page in range(start // PAGE_BYTES, -(-end // PAGE_BYTES)):
            if page not in before:
                before[page] = os.pread(self._fd, PAGE_BYTES, page * PAGE_BYTES)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes written or truncated that no finished sync covers."""
        return sum(layer.written_bytes for layer in self._layers)

    def issue_sync(self) -> Layer:
        """Starts a sync: bytes written from here on are not covered by it."""
        self._layers.append(Layer(size_before=self.size))
        return self._layers[-1]

    def finish_sync(self, issued: Layer) -> None:
        """Finishes the sync issued with this layer: everything before it is durable, except what is lost."""
        if issued not in self._layers:
            # A later sync finished first, or the power was cut.
            return
        at = self._layers.index(issued)
        covered, rest = self._layers[:at], self._layers[at:]
        lost = [layer for layer in covered if layer.lost]
        durable = {page for layer in covered if not layer.lost for page in layer.before}
        for layer in lost if durable else []:
            layer.size_before = None
            for page in durable:
                layer.before.pop(page, None)
        self._layers = [*lost, *rest]

    def fail_sync(self, issued: Layer) -> None:
        """Fails the sync: its pages count as clean from here on, and are on no disk."""
        self.failed_syncs += 1
        if issued in self._layers:
            for layer in self._layers[: self._layers.index(issued)]:
                layer.lost = True

    def undo(self, draw: random.Random | None = None) -> int:
        """Drops what no sync covered; with ``draw`` a part of it survives, as on a disk. Returns bytes dropped.

        The surviving part is drawn page by page, because a disk orders nothing between two syncs; the size is the old
        or the new one, or one between them.
        """
        unsynced, size = self.unsynced_bytes, self.size
        self.failed_syncs = 0
        now = {page: os.pread(self._fd, PAGE_BYTES, page * PAGE_BYTES) for page in self._kept_pages()} if draw else {}
        for layer in reversed(self._layers):
            self._restore(layer)
        self._layers = [Layer(size_before=self.size)]
        if draw is not None and unsynced:
            unsynced = min(unsynced, self._keep_some(draw, now, size, unsynced))
        self._layers = [Layer(size_before=self.size)]
        return unsynced

    def _kept_pages(self) -> set[int]:
        return {page for layer in self._layers if not layer.lost for page in layer.before}

    def _restore(self, layer: Layer) -> None:
        for page, content in layer.before.items():
            padded = content if layer.size_before is not None else content.ljust(PAGE_BYTES, b"\0")
            os.pwrite(self._fd, padded.ljust(PAGE_BYTES, b"\0"), page * PAGE_BYTES)
        self.size = self.size if layer.size_before is None else layer.size_before
        os.ftruncate(self._fd, self.size)

    def _keep_some(self, draw: random.Random, now: dict[int, bytes], size: int, unsynced: int) -> int:
        low, high = sorted((self.size, size))
        survivors = [page for page in sorted(now) if draw.random() < 0.5]
        self.size = draw.choice((self.size, size, draw.randint(low, high)))
        for page in survivors:
            os.pwrite(self._fd, now[page], page * PAGE_BYTES)
        os.ftruncate(self._fd, self.size)
        return max(0, unsynced - sum(len(now[page]) for page in survivors if page * PAGE_BYTES < self.size))
