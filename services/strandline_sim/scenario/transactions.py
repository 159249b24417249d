"""The transactions that the producers of a scenario have begun: epochs, sequences, and consents.

The scenario's coordinator decides about the transactions of the producers that asked it for an identity.
Any other producer is given consent exactly while it has begun a transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.types import (
    OF_TRANSACTIONS,
    TRANSACTIONAL_BIT,
    BatchHeader,
    EpochEntry,
    Marker,
    Offset,
    ProducerStamp,
)
from strandline_sim.world.disk import LogFile

NOT_BEGUN = Refusal(ErrorCode.INVALID_TXN_STATE, "the transaction was not begun", Outcome.NOT_APPENDED)
_NO_COORDINATOR = "scenario"
"""The transactional id of all producers that no coordinator knows."""


@dataclass(slots=True)
class Producers:
    """All producers, by their names."""

    _ids: dict[str, int] = field(default_factory=dict)
    _transactional_ids: dict[int, str] = field(default_factory=dict)
    """The transactional id of each producer id that the coordinator gave."""
    next_sequence: dict[str, int] = field(default_factory=dict)
    """The sequence of each producer's next record, in its newest epoch."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The newest epoch of each producer that began a transaction."""
    begun: set[int] = field(default_factory=set)
    """The ids of the producers that have an open transaction."""
    held_back: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    """The functions that let the coordinator's late consents arrive, by producer id."""

    def id_of(self, name: str) -> int:
        """The id of the producer with this name."""
        return self._ids.setdefault(name, len(self._ids) + 1)

    def identify(self, name: str, producer_id: int, epoch: int, transactional_id: str) -> None:
        """The coordinator gave a process this identity; what it sends from now on begins at sequence 0."""
        self._ids[name], self.epochs[name], self.next_sequence[name] = producer_id, epoch, 0
        self._transactional_ids[producer_id] = transactional_id

    def is_identified(self, producer_id: int) -> bool:
        """Whether the coordinator gave this producer id."""
        return producer_id in self._transactional_ids

    def transactional_id_of(self, producer_id: int) -> str:
        """The transactional id that a producer id belongs to."""
        return self._transactional_ids.get(producer_id, _NO_COORDINATOR)

    def stamp(self, name: str, sequence: int, epoch: int | None = None) -> ProducerStamp:
        """The producer fields of a batch, in the newest epoch unless another is given."""
        return ProducerStamp(self.id_of(name), self.epochs.get(name, 0) if epoch is None else epoch, sequence)

    def attributes(self, name: str) -> int:
        """The attributes of a producer's batches: once it has begun a transaction, all are transactional."""
        return TRANSACTIONAL_BIT if name in self.epochs else 0

    def begin(self, name: str, *, is_late: bool) -> None:
        """A producer begins a transaction; ``is_late``: consents wait for `let_go`."""
        self.epochs.setdefault(name, 0)
        self.begun.add(self.id_of(name))
        if is_late:
            self.held_back.setdefault(self.id_of(name), [])

    def let_go(self, name: str) -> list[Callable[[], None]]:
        """Take the functions that let the held consents arrive, in order."""
        return self.held_back.pop(self.id_of(name), [])

    def end(self, name: str, epoch: int) -> None:
        """The coordinator has decided; the next transaction has this epoch, and begins at sequence 0."""
        self.begun.discard(self.id_of(name))
        if epoch > self.epochs.get(name, -1):
            self.epochs[name], self.next_sequence[name] = epoch, 0

    def verdict(self, producer_id: int) -> Refusal | None:
        """The answer about a partition to which a producer without a coordinator writes for the first time."""
        return None if producer_id in self.begun else NOT_BEGUN


# ---- records
# The records of a scenario, and the notation of logs.
#
# A record is one word. ``m1@0`` is the record m1 written in leader epoch 0. A batch is a tuple of such words.

_RANGE = re.compile(r"^([a-zA-Z_-]*)(\d{1,12})\.\.([a-zA-Z_-]*)(\d{1,12})$")
EMPTY = "empty"
MARKER_BYTES = 78
"""Size of a marker."""

MOST_RECORDS = 100_000
"""The most records that one word of a command may represent."""


class LogRecord(NamedTuple):
    """One record of a log."""

    offset: int
    epoch: int
    value: str

    def __str__(self) -> str:
        return f"{self.value}@{self.epoch}"


def count_of(word: str) -> int:
    """The number of records that `expand` makes of a word."""
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
    """Records in groups of a given size."""
    for start in range(0, len(values), size):
        yield tuple(values[start : start + size])


def named(values: tuple[str, ...]) -> str:
    """A batch by its records: ``m0``, or ``m0..m9``."""
    return values[0] if len(values) == 1 else f"{values[0]}..{values[-1]}"


def records_in(batch: BatchHeader, payload: object) -> Iterator[LogRecord]:
    """The records of one batch; its payload is their names."""
    assert isinstance(payload, tuple), "a batch of a scenario holds the names of its records"
    for offset, value in enumerate(payload, batch.base_offset):
        yield LogRecord(offset, batch.stamped_epoch, value)


def records_of(log: LogFile, start: int | None = None, end: int | None = None) -> Iterator[LogRecord]:
    """The records in [start, end), by default from the log start to the log end."""
    low = log.log_start if start is None else start
    for batch, payload in zip(log.headers, log.values, strict=True):
        if batch.next_offset > low and (end is None or batch.base_offset < end):
            for record in records_in(batch, payload):
                if record.offset >= low and (end is None or record.offset < end):
                    yield record


def shown_records(records: Iterable[LogRecord], *, shorten: int = 12) -> str:
    """Records as one line: ``m0@0 m1@0``; a long run is shortened in its middle."""
    words = [str(record) for record in records]
    if len(words) > shorten:
        words = [*words[: shorten // 2], "..", *words[-shorten // 2 :]]
    return " ".join(words) or EMPTY


def shown_epochs(entries: Iterable[EpochEntry]) -> str:
    """Epoch cache entries: ``0@0 2@5`` says that epoch 2 begins at offset 5."""
    return " ".join(f"{entry.epoch}@{entry.start_offset}" for entry in entries) or EMPTY
