"""The exit codes of Strandline processes, so that a supervisor can distinguish a full disk from a bug.

Invariant: each kind of fail-stop has its own number and prints exactly one line; 0 means a clean stop only.
"""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from typing import NoReturn


class ExitCode(IntEnum):
    """The numbers, and what to do about each."""

    CLEAN = 0
    FAILED = 1
    """Something unexpected; the line says what."""
    USAGE = 2
    """A setting is wrong; correct it."""
    STORAGE_FAILED = 10
    """A write or an fsync failed and is never retried: look at the disk, then start again."""
    STORAGE_DAMAGED = 11
    """Bytes on the disk are not what was written; the node registers as unclean at its next start (M58)."""
    INVARIANT_BROKEN = 12
    """An assertion of the core or of a performer failed: a bug; keep the directory and report it."""
    FENCED = 13
    """The controller no longer accepts this process; the line says why, and whether to start it again."""
    FSYNC_HUNG = 14
    """An fsync took longer than the session time-out (M59)."""
    DIRECTORY_IN_USE = 15
    """Another process holds the data directory's lock."""
    REFUSED = 16
    """The controller refuses this node for good (another cluster, other rules), or its own store was moved."""
    PORT_TAKEN = 17
    """The address to listen on is taken or not local."""
    STOP_TOOK_TOO_LONG = 18
    """The controlled shutdown or the last flush did not end in time; the next start recovers."""


def require_assertions() -> None:
    """End the process under ``python -O``, which removes every assertion: invariants would no longer be checked."""
    if not __debug__:
        stop_process(
            ExitCode.USAGE,
            "this Python removes assertions, and the invariants of the log are asserted; "
            "start it without -O and with PYTHONOPTIMIZE unset",
        )


def stop_process(code: ExitCode, line: str) -> NoReturn:
    """Print one line and end the process at once: no answer, no retry, no cleanup that could lie."""
    try:
        print(f"strandline: {line}", file=sys.stderr, flush=True)  # noqa: T201 - the one line a fail-stop prints
    finally:
        # Even if the line cannot be written: stderr may be on the disk that failed.
        os._exit(int(code))
