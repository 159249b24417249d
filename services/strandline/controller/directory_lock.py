"""One process for each controller's data directory, for a controller whose store is elsewhere.

Invariant: the lock ends with the process that holds it, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from strandline.metadata.store import StoreInUse


class DirectoryLock:
    """The lock of one directory, held until `release`."""

    def __init__(self, data_dir: Path) -> None:
        """Take it.

        Raises:
            StoreInUse: another process has it.
        """
        data_dir.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            raise StoreInUse(f"data_dir {data_dir} is in use by another controller; give each its own") from error

    def release(self) -> None:
        """Let another process have it."""
        os.close(self._handle)
