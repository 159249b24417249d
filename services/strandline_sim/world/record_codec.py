"""The codec of coordinators' records in the simulator: the identity, with plausible sizes (G4)."""

from __future__ import annotations

from typing import Any

from strandline.core.coordinator.machine import Batch, DecodedRecord, EncodedBatch
from strandline.core.types import BatchHeader, Offset

_BATCH_BYTES = 61
_RECORD_BYTES = 60


class IdentityCodec:
    """A batch's records are its payload (`core.coordinator.records.RecordCodec`)."""

    record_bytes = _RECORD_BYTES

    def encode(self, records: Batch, unix_ms: int) -> EncodedBatch:
        """One batch."""
        size_bytes = _BATCH_BYTES + _RECORD_BYTES * len(records)
        header = BatchHeader(Offset(0), None, len(records), size_bytes, unix_ms)
        return EncodedBatch(header, records, (_RECORD_BYTES,) * len(records))

    def decode(self, payload: Any) -> tuple[DecodedRecord, ...]:
        """The records of the batches that `MemoryLogs` read."""
        return tuple(DecodedRecord(record, _RECORD_BYTES) for batch in payload.values for record in batch)


class NumberedCodec:
    """A batch's records as one number, like every value in the logs of a run."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._sizes = IdentityCodec()

    def encode(self, records: Batch, unix_ms: int) -> EncodedBatch:
        """One batch."""
        self._batches.append(records)
        return self._sizes.encode(records, unix_ms)._replace(payload=len(self._batches) - 1)

    def records(self, number: int) -> Batch:
        """The records of a batch."""
        return self._batches[number]

    def decode(self, payload: Any) -> tuple[DecodedRecord, ...]:
        """The records of the batches that were read."""
        batches = (self.records(number) for number in payload.values)
        return tuple(DecodedRecord(record, IdentityCodec.record_bytes) for batch in batches for record in batch)
