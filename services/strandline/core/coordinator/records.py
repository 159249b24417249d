"""What a coordinator's log holds: keys with a value, or with none, which deletes the key (G4).

Invariant: keys and values are frozen, so that a record that was applied, and is held by the table, never changes.
Each machine has key and value classes of its own (`core/groups/records.py`); `coordinator_record.proto` encodes them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

from strandline.core.types import BatchHeader


class Key(Hashable, Protocol):
    """What a record is of: a frozen dataclass that names the group or transactional id it belongs to."""


class Record(NamedTuple):
    """A key and its new value; ``value`` None deletes the key. Deleting what is not there is no error (G4)."""

    key: Key
    value: object | None = None


Batch = tuple[Record, ...]
"""Records that are appended as one record batch: all of them are in the log, or none."""


class EncodedBatch(NamedTuple):
    """A batch as a log takes it, and how many bytes each of its records has, in their order."""

    header: BatchHeader
    payload: object
    sizes: tuple[int, ...]


class DecodedRecord(NamedTuple):
    """A record from a log, and its size in bytes."""

    record: Record
    size_bytes: int


class RecordCodec(Protocol):
    """Turns records into the bytes of a batch, and back. Pure; in the simulator it is the identity."""

    def encode(self, records: Batch, unix_ms: int) -> EncodedBatch:
        """One batch of ``records``, in order, each with the timestamp ``unix_ms``."""
        ...

    def decode(self, payload: object) -> tuple[DecodedRecord, ...]:
        """The records of the whole batches in ``payload``, in order.

        Raises:
            Refused: CORRUPT_MESSAGE for bytes that no version of this software writes.
        """
        ...
