"""Records of coordinators as bytes: keys and values in protobuf, in record batches like any other (G4).

Invariant: decoding what was encoded gives the same records; fields that a later release added are left out.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from strandline.core.coordinator.records import Batch, DecodedRecord, EncodedBatch, Record
from strandline.core.errors import ErrorCode, Refused
from strandline.core.group_offsets import OffsetKey, OffsetValue
from strandline.core.types import LeaderEpoch, Offset
from strandline.records.batch import parse_header, split_batches
from strandline.records.codec import NewRecord, decode_batch, encode_batch
from strandline.v1 import coordinator_record_pb2 as pb

_NO_LIMIT_BYTES = 1 << 30
"""A batch that is too large is encoded, so that its coordinator can say how large it is."""


class ProtoRecords:
    """The codec of a data node (`core.coordinator.records.RecordCodec`)."""

    def encode(self, records: Batch, unix_ms: int) -> EncodedBatch:
        """One batch."""
        rows = [(_key(record), _value(record)) for record in records]
        payload = encode_batch([NewRecord(key, value, unix_ms) for key, value in rows], max_bytes=_NO_LIMIT_BYTES)
        sizes = tuple(len(key) + len(value or b"") for key, value in rows)
        return EncodedBatch(parse_header(payload), memoryview(payload), sizes)

    def decode(self, payload: object) -> tuple[DecodedRecord, ...]:
        """The records of whole batches.

        Raises:
            Refused: CORRUPT_MESSAGE, or INVALID_RECORD for a kind of record that this release does not know.
        """
        assert isinstance(payload, bytes | bytearray | memoryview)
        found: list[DecodedRecord] = []
        for batch in split_batches(payload, _NO_LIMIT_BYTES):
            for row in decode_batch(batch.view):
                key, value = row.key or b"", row.value
                found.append(DecodedRecord(_record(key, value, row.offset), len(key) + len(value or b"")))
        return tuple(found)


def _key(record: Record) -> bytes:
    key = record.key
    assert isinstance(key, OffsetKey), f"{key!r} has no form on disk"
    message = pb.CommittedOffsetKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return bytes(pb.CoordinatorRecordKey(committed_offset=message).SerializeToString(deterministic=True))


def _value(record: Record) -> bytes | None:
    value = record.value
    if value is None:
        return None
    assert isinstance(value, OffsetValue), f"{value!r} has no form on disk"
    message = pb.CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_ms,
        order=value.order,
    )
    return bytes(pb.CoordinatorRecordValue(committed_offset=message).SerializeToString(deterministic=True))


def _record(key: bytes, value: bytes | None, offset: Offset) -> Record:
    try:
        read = pb.CoordinatorRecordKey.FromString(key)
        given = None if value is None else pb.CoordinatorRecordValue.FromString(value)
    except DecodeError as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the record at {offset} is no record of a coordinator") from error
    kind = read.WhichOneof("key")
    if kind != "committed_offset" or (given is not None and given.WhichOneof("value") != kind):
        message = f"the record at {offset} is of a kind that this release does not know; run a newer one"
        raise Refused(ErrorCode.INVALID_RECORD, message)
    of = read.committed_offset
    found = OffsetKey(of.group_id, of.topic_id, of.partition)
    if given is None:
        return Record(found)
    row = given.committed_offset
    epoch = LeaderEpoch(row.leader_epoch) if row.HasField("leader_epoch") else None
    return Record(found, OffsetValue(Offset(row.offset), epoch, row.metadata, row.commit_timestamp_ms, row.order))
