"""Opens logs in a test's directory, for the fixtures of this folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from strandline.core.types import Offset
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.log import Log, LogSettings
from strandline.storage.recovery import Recovery


def open_files(directory: Path) -> int:
    """How many descriptors of this process are of files in ``directory``; others come and go with earlier tests."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += os.readlink(entry).startswith(str(directory))
    return found


class Builder:
    """Opens logs under one data directory, appends to them, and closes what was opened."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.path = data / "t-0"
        self._open: list[Log] = []

    def log(self, **settings: int | bool | None) -> Log:
        """The log ``t-0``, without its recovery report."""
        return self.recover(**settings)[0]

    def recover(
        self,
        *,
        clean: bool = False,
        check_all: bool = False,
        checkpoints: Checkpoints | None = None,
        **settings: int | bool | None,
    ) -> tuple[Log, Recovery]:
        """Open the log ``t-0`` again and return the recovery report."""
        layout = LogSettings(**{"segment_bytes": 4_000, "index_interval_bytes": 256, **settings})  # type: ignore[arg-type]
        log, recovery = Log.open(self.path, settings=layout, checkpoints=checkpoints, clean=clean, check_all=check_all)
        self._open.append(log)
        return log, recovery

    def close(self) -> None:
        for log in self._open:
            log.close(clean=False)


class Fill(Protocol):
    """Appends ``batches`` batches of ``records`` records each; returns the new LEO."""

    def __call__(
        self,
        log: Log,
        batches: int = 1,
        *,
        records: int = 2,
        epoch: int = 1,
        size_bytes: int = 50,
        start_ms: int = 1_000,
    ) -> Offset: ...
