"""Logs of partitions that were moved to other nodes: set aside, kept for a while, then removed (C78).

Invariant: such a log is never opened again; a partition that returns to this node begins with an empty log.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from strandline.storage.layout import remove_tree, rename_directory

MOVED_SUFFIX = ".moved.stray"
"""Differs from the suffix of logs of another topic id (M63), which only an operator removes."""


class Strays:
    """The logs of one data directory that were set aside because their partition was moved."""

    def __init__(self, directory: Path) -> None:
        self._waiting = list(directory.glob(f"*{MOVED_SUFFIX}"))

    def set_aside(self, log: Path, target: Path) -> None:
        """Rename a closed log durably, and set its modification time to now. Raises `StorageFailed`."""
        # The time to keep it counts from now, not from its last append, which may be days ago.
        os.utime(log)
        rename_directory(log, target)
        self._waiting.append(target)

    def remove_due(self, keep_ms: int, *, is_space_low: bool) -> None:
        """Remove what has been kept for ``keep_ms``, or everything while space is low. May be called in a thread.

        Raises:
            StorageFailed: the disk failed.
        """
        oldest_s = time.time() - keep_ms / 1_000
        for path in list(self._waiting):
            try:
                is_due = is_space_low or os.path.getmtime(path) <= oldest_s
            except FileNotFoundError:
                # An operator who needs the space has removed it.
                is_due = True
            if is_due:
                remove_tree(path)
                self._waiting.remove(path)
