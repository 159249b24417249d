"""Where `strandline produce` reads its lines: a file, a pipe, or a keyboard.

Invariant: waiting for input never stops the event loop and never delays the end of the command: a line typed is
sent when it is typed, and Ctrl-C works while nothing comes.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK_BYTES = 1 << 18


@contextmanager
def open_source(file: Path | None) -> Iterator[int]:
    """The file descriptor of a file; of stdin for None and for `-`."""
    if file is None or str(file) == "-":
        yield sys.stdin.fileno()
        return
    with file.open("rb", buffering=0) as source:
        yield source.fileno()


async def lines_of(descriptor: int) -> AsyncIterator[bytes]:
    """The lines without their line feeds; a last line without one is a line too."""
    rest = b""
    async for chunk in _chunks(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            yield chunk
        return
    arriving: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)
    # A daemon, and reading past Python's own buffers: the process may end while it waits for a key.
    threading.Thread(target=_pump, args=(descriptor, arriving, asyncio.get_running_loop()), daemon=True).start()
    while chunk := await arriving.get():
        yield chunk


def _pump(descriptor: int, arriving: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Hands over what comes, piece by piece; an empty piece at the end. Waits while the queue is full."""
    while True:
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(arriving.put(chunk), loop).result()
        if not chunk:
            return


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line; a line without the separator has no key."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)
