"""Settings of glibc's malloc that keep large buffers instead of mapping and unmapping them for every message.

Invariant: both thresholds are set or neither. Setting one ends glibc's adaptation of both, so the other would stay at
its initial 128 KiB, which is slower than setting none.
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
MMAP_THRESHOLD_BYTES = 32 << 20
TRIM_THRESHOLD_BYTES = 512 << 20


def keep_large_buffers() -> bool:
    """Set both thresholds; return whether this libc accepted them."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)) and bool(
        mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    )
