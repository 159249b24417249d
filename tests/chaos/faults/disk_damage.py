"""Damage of bytes on a disk: a bit that flipped, a piece that is gone, a folder that is another disk's.

Invariant: the changed bytes existed and are different afterwards; the change is made through the file system, so that a
running process reads it like any other.
"""

from __future__ import annotations

import os
from pathlib import Path

_CUT_BYTES = 1024


def flip_bit(path: Path, at: float) -> int:
    """Flips one bit at a fraction of the file's size; returns the byte's position."""
    size = path.stat().st_size
    assert size > 0, f"{path} is empty"
    position = min(size - 1, int(size * at))
    fd = os.open(path, os.O_RDWR)
    try:
        (byte,) = os.pread(fd, 1, position)
        os.pwrite(fd, bytes([byte ^ 0x10]), position)
    finally:
        os.close(fd)
    return position


def cut_end(path: Path) -> int:
    """Removes 1 KiB, or all there is, from the end; returns the new end of the file."""
    size = path.stat().st_size
    assert size > 0, f"{path} is empty"
    kept = max(0, size - _CUT_BYTES)
    os.truncate(path, kept)
    return kept


def segments(log: Path) -> list[Path]:
    """The segments of a log, oldest first; the last is active."""
    return sorted(log.glob("*.log"))
