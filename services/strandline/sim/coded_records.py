"""The codec of coordinators' records in a world whose batches are represented by numbers (G4).

Invariant: a number is given once in a world, so two batches are equal exactly if they are one batch.
"""

from __future__ import annotations

from typing import Any

from strandline.core.coordinator.records import Batch, DecodedRecord, EncodedBatch
from strandline.core.types import BatchHeader, Offset

_FIRST = 1 << 52
"""Far above the numbers of what producers send."""
_BATCH_BYTES = 61
_RECORD_BYTES = 60


class CodedRecords:
    """Remembers every batch of a world by its number (`core.coordinator.records.RecordCodec`)."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def encode(self, records: Batch, unix_ms: int) -> EncodedBatch:
        """One batch, with sizes as they might be."""
        self._batches.append(records)
        size_bytes = _BATCH_BYTES + _RECORD_BYTES * len(records)
        header = BatchHeader(Offset(0), None, len(records), size_bytes, unix_ms)
        return EncodedBatch(header, _FIRST + len(self._batches) - 1, (_RECORD_BYTES,) * len(records))

    def decode(self, payload: Any) -> tuple[DecodedRecord, ...]:
        """The records of the batches that `MemoryLogs` read."""
        return tuple(
            DecodedRecord(record, _RECORD_BYTES)
            for number in payload.values
            for record in self._batches[number - _FIRST]
        )
