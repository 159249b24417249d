"""Brings the machine's memory into the state that a server has after a day: nearly all of it was used before.

The host of a virtual machine provides a page of memory when it is first touched, and takes back what is free. Measured
here: 3 to 12 us for each such page. An append of 64 KiB needs 16 pages at each replica: in a fresh machine it took 91
to 326 us on average, by chance, and 25 us once memory had been used. So the figures of a party depended on what had run
before it.

Invariant: it takes only pages that the kernel gives back when they are needed, and ends by itself.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

KEPT_FREE_BYTES = 1 << 30
LIMIT_S = 120.0
"""Longest time for one call; a machine with very much memory is filled as far as that suffices."""
_HOLE_BYTES = 1 << 40
_CHUNK_BYTES = 4 << 20
_MEMINFO = Path("/proc/meminfo")


def free_bytes() -> int:
    """Memory that nothing uses, not even the page cache; 0 where the kernel does not say."""
    lines = _MEMINFO.read_text().splitlines() if _MEMINFO.exists() else ()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree:"))


class UsedMemory:
    """Fills free memory with pages of a file that has a size and no content, each read once."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "hole"
        self._at = 0

    def fill(self) -> None:
        """Read as many bytes as are free beyond `KEPT_FREE_BYTES`."""
        ends_at, last = time.monotonic() + LIMIT_S, self._at + free_bytes() - KEPT_FREE_BYTES
        buffer = bytearray(_CHUNK_BYTES)
        with self._path.open("ab+", buffering=0) as file:
            file.truncate(_HOLE_BYTES)
            while self._at < last and time.monotonic() < ends_at:
                # Never the same page twice: one that is still cached would take no memory.
                self._at += os.preadv(file.fileno(), [buffer], self._at % _HOLE_BYTES)
