"""The codec of coordinators' records in the simulator: the identity, with sizes as they might be (G4)."""

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
