"""Logs in a test's directory: opened, filled, read, and closed at the end."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from strandline.core.types import LeaderEpoch, Offset
from strandline.records.batch import split_batches
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.log import Log, LogSettings
from strandline.storage.recovery import Recovery


def open_files(directory: Path, suffix: str = "") -> int:
    """How many descriptors of this process are of such files in ``directory``; others are of earlier tests."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += (target := os.readlink(entry)).startswith(str(directory)) and target.endswith(suffix)
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


def append(log: Log, *values: bytes, epoch: int = 1) -> None:
    """A batch of records with these values."""
    log.append(split_batches(encode_batch([NewRecord(None, v, 1) for v in values])), log.leo, LeaderEpoch(epoch))


def fill(
    log: Log, batches: int = 1, *, records: int = 2, epoch: int = 1, size_bytes: int = 50, start_ms: int = 1_000
) -> Offset:
    """Append ``batches`` batches of ``records`` records each; returns the new LEO."""
    for _ in range(batches):
        rows = [
            NewRecord(None, b"%010d" % (log.leo + at) + b"." * size_bytes, start_ms + log.leo + at)
            for at in range(records)
        ]
        log.append(split_batches(encode_batch(rows)), log.leo, LeaderEpoch(epoch))
    return log.leo


def read_all(log: Log) -> list[bytes]:
    """The batches as a reader sees them."""
    batches: list[bytes] = []
    at = log.log_start_offset
    while at < log.leo:
        part = split_batches(log.read(at, 500, log.leo).payload)
        batches += [bytes(view) for _, view in part]
        at = part[-1].header.next_offset
    return batches
