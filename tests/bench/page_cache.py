"""Puts files out of the page cache or into it, and says how much of them is in it.

Invariant: "cold" and "cached" are checked, not assumed: `share_cached` asks the kernel page by page.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_CHUNK_BYTES = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)


def drop(paths: Iterable[Path]) -> None:
    """Write what is not on the disk yet, then let the kernel forget the pages."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def load(paths: Iterable[Path]) -> None:
    """Read the files from one end to the other."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(_CHUNK_BYTES):
                pass


def share_cached(paths: Iterable[Path]) -> float:
    """The part of all pages of these files that is in the page cache, 0 to 1; 0 without pages.

    Raises:
        OSError: the kernel does not say.
    """
    cached = total = 0
    for path in paths:
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if not size_bytes:
                continue
            # A private mapping is writable for ctypes without changing the file, and maps no page by itself.
            with mmap.mmap(file.fileno(), size_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
                pages = (size_bytes + mmap.PAGESIZE - 1) // mmap.PAGESIZE
                resident = (ctypes.c_ubyte * pages)()
                first = ctypes.c_ubyte.from_buffer(mapped)
                failed = _libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size_bytes), resident)
                del first
                if failed:
                    raise OSError(ctypes.get_errno(), f"mincore of {path}")
                cached += sum(page & 1 for page in resident)
                total += pages
    return cached / total if total else 0.0
