"""Builders for logs: a batch, a log in a fresh data directory, and appends to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from strandline.core.types import LeaderEpoch, Offset
from strandline.records.batch import check_produced, split_batches
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage.checkpoint import DirectoryCheckpoints
from strandline.storage.log import Log, LogSettings
from strandline.storage.recovery import Recovery

_HERE = str(Path(__file__).parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)


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
        checkpoints: DirectoryCheckpoints | None = None,
        **settings: int | bool | None,
    ) -> tuple[Log, Recovery]:
        """Open the log ``t-0`` anew and say what was found."""
        layout = LogSettings(**{"segment_bytes": 4_000, "index_interval_bytes": 256, **settings})  # type: ignore[arg-type]
        log, recovery = Log.open(self.path, settings=layout, checkpoints=checkpoints, clean=clean, check_all=check_all)
        self._open.append(log)
        return log, recovery

    def close(self) -> None:
        """Give every descriptor back."""
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


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Builder]:
    """A builder whose logs are closed at the end."""
    builder = Builder(tmp_path)
    yield builder
    builder.close()


@pytest.fixture
def fill() -> Fill:
    """Appends as a leader does; record values differ by offset, timestamps grow with it."""
    return _fill


def _fill(
    log: Log, batches: int = 1, *, records: int = 2, epoch: int = 1, size_bytes: int = 50, start_ms: int = 1_000
) -> Offset:
    for _ in range(batches):
        rows = [
            NewRecord(None, b"%010d" % (log.leo + at) + b"." * size_bytes, start_ms + log.leo + at)
            for at in range(records)
        ]
        log.append(check_produced(encode_batch(rows)), log.leo, LeaderEpoch(epoch))
    return log.leo


@pytest.fixture
def content() -> ContentOf:
    """Reads a whole log, as a list of batches."""
    return _content


class ContentOf(Protocol):
    """Every batch of a log, read through the log."""

    def __call__(self, log: Log) -> list[bytes]: ...


def _content(log: Log) -> list[bytes]:
    batches: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.leo:
        part = split_batches(log.read(offset, 1_000, log.leo))
        batches += [bytes(view) for _, view in part]
        offset = part[-1].header.next_offset
    return batches
