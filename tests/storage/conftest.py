"""Builders for logs: a batch, a log in a fresh data directory, and appends to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from log_builder import Builder, Fill
from power_cut import PowerCut

from strandline.core.types import LeaderEpoch, Offset
from strandline.records.batch import split_batches
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage.log import Log


@pytest.fixture
def power(monkeypatch) -> Iterator[PowerCut]:
    """Redirects every sync of the process to the model instead of the disk."""
    cut = PowerCut()
    monkeypatch.setattr(os, "fdatasync", cut.sync)
    monkeypatch.setattr(os, "fsync", cut.sync)
    monkeypatch.setattr(os, "open", cut.open)
    yield cut
    cut.forget()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Builder]:
    """A builder whose logs are closed at the end."""
    builder = Builder(tmp_path)
    yield builder
    builder.close()


@pytest.fixture
def fill() -> Fill:
    """Appends like a leader; record values differ by offset, timestamps grow with it."""
    return _fill


def _fill(
    log: Log, batches: int = 1, *, records: int = 2, epoch: int = 1, size_bytes: int = 50, start_ms: int = 1_000
) -> Offset:
    for _ in range(batches):
        rows = [
            NewRecord(None, b"%010d" % (log.leo + at) + b"." * size_bytes, start_ms + log.leo + at)
            for at in range(records)
        ]
        log.append(split_batches(encode_batch(rows)), log.leo, LeaderEpoch(epoch))
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
        part = split_batches(log.read(offset, 1_000, log.leo).payload)
        batches += [bytes(view) for _, view in part]
        offset = part[-1].header.next_offset
    return batches
