"""Which words of an embedded Spark reach the terminal: all of its stderr but greetings that say nothing.

The JVM prints them whatever its logging is set to, and its workers print through it, so they are taken out on the way.

Invariant: only whole lines that begin as `_GREETINGS` do are left out, and empty ones; the JVM waits for no reader.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2
_GREETINGS = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)


@contextmanager
def without_greetings() -> Iterator[None]:
    """Processes that are started in the block say on our stderr what they say on theirs, greetings left out."""
    ours = os.dup(_STDERR)
    reader, writer = os.pipe()
    threading.Thread(target=_pass_on, args=(reader, os.dup(ours)), name="jvm-words", daemon=True).start()
    os.dup2(writer, _STDERR)
    os.close(writer)
    try:
        yield
    finally:
        os.dup2(ours, _STDERR)
        os.close(ours)


def _pass_on(reader: int, ours: int) -> None:
    """Copy lines until everybody who could write has ended."""
    with os.fdopen(reader, "rb") as lines, os.fdopen(ours, "wb", buffering=0) as stderr:
        for line in lines:
            if line.strip() and not line.startswith(_GREETINGS):
                stderr.write(line)
