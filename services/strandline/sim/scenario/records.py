"""What a scenario's records are made of, and how logs are written down.

A record is one word. ``m1@0`` is the record m1 written in leader epoch 0. A batch is a tuple of such words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from strandline.core.types import OF_TRANSACTIONS, BatchHeader, EpochEntry, Marker, Offset, ProducerStamp
from strandline.sim.disk import LogFile

_RANGE = re.compile(r"^([a-zA-Z_-]*)(\d{1,12})\.\.([a-zA-Z_-]*)(\d{1,12})$")
EMPTY = "empty"
MARKER_BYTES = 78
"""Size of a marker."""

MOST_RECORDS = 100_000
"""What one word of a command may represent."""


class Record(NamedTuple):
    """One record of a log."""

    offset: int
    epoch: int
    value: str

    def __str__(self) -> str:
        return f"{self.value}@{self.epoch}"


def count_of(word: str) -> int:
    """How many records `expand` makes of a word."""
    found = _RANGE.match(word)
    if found is None or found[1] != found[3] or int(found[4]) < int(found[2]):
        return 1
    return int(found[4]) - int(found[2]) + 1


def expand(word: str) -> list[str]:
    """``m0..m3`` is m0 m1 m2 m3; any other word is itself."""
    found = _RANGE.match(word)
    if found is None or found[1] != found[3] or int(found[4]) < int(found[2]):
        return [word]
    return [f"{found[1]}{number}" for number in range(int(found[2]), int(found[4]) + 1)]


def header(*, count: int = 1, size_bytes: int, stamp: ProducerStamp | None = None, attributes: int = 0) -> BatchHeader:
    """A batch of records of ``size_bytes`` each; the leader stamps base offset and epoch."""
    return BatchHeader(
        base_offset=Offset(0),
        leader_epoch=None,
        record_count=count,
        size_bytes=size_bytes * count,
        max_timestamp_ms=0,
        producer=stamp,
        attributes=attributes,
    )


def marker(said: Marker, stamp: ProducerStamp) -> BatchHeader:
    """The control batch that ends a producer's transaction."""
    return header(size_bytes=MARKER_BYTES, stamp=stamp, attributes=OF_TRANSACTIONS)._replace(marker=said)


def in_batches(values: list[str], size: int) -> Iterator[tuple[str, ...]]:
    """Records, so many at a time."""
    for start in range(0, len(values), size):
        yield tuple(values[start : start + size])


def named(values: tuple[str, ...]) -> str:
    """A batch by its records: ``m0``, or ``m0..m9``."""
    return values[0] if len(values) == 1 else f"{values[0]}..{values[-1]}"


def records_in(batch: BatchHeader, payload: object) -> Iterator[Record]:
    """The records of one batch; its payload is their names."""
    assert isinstance(payload, tuple), "a batch of a scenario holds the names of its records"
    for offset, value in enumerate(payload, batch.base_offset):
        yield Record(offset, batch.stamped_epoch, value)


def records_of(log: LogFile, start: int | None = None, end: int | None = None) -> Iterator[Record]:
    """The records in [start, end), by default from the log start to the log end."""
    low = log.log_start if start is None else start
    for batch, payload in zip(log.headers, log.values, strict=True):
        if batch.next_offset > low and (end is None or batch.base_offset < end):
            for record in records_in(batch, payload):
                if record.offset >= low and (end is None or record.offset < end):
                    yield record


def shown_records(records: Iterable[Record], *, shorten: int = 12) -> str:
    """Records as one line: ``m0@0 m1@0``; a long run is shortened in its middle."""
    words = [str(record) for record in records]
    if len(words) > shorten:
        words = [*words[: shorten // 2], "..", *words[-shorten // 2 :]]
    return " ".join(words) or EMPTY


def shown_epochs(entries: Iterable[EpochEntry]) -> str:
    """Epoch cache entries: ``0@0 2@5`` says that epoch 2 begins at offset 5."""
    return " ".join(f"{entry.epoch}@{entry.start_offset}" for entry in entries) or EMPTY
