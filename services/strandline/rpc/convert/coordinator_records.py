"""Records of coordinators as bytes: keys and values in protobuf, in record batches like any other (G4).

Invariant: decoding an encoded batch gives the same records; fields that a later release added are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from strandline.core.coordinator.machine import Batch, DecodedRecord, EncodedBatch, Record
from strandline.core.errors import ErrorCode, Refused
from strandline.core.groups.records import (
    AssignedPartition,
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberState,
    MemberValue,
    OffsetKey,
    OffsetValue,
    ProducerFenceKey,
    ProducerFenceValue,
    StagedOffsetKey,
    StagedOffsetValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)
from strandline.core.transactions.messages import ProducerIdentity
from strandline.core.transactions.records import TransactionalId, TransactionalIdKey, TxnState
from strandline.core.types import Offset, TopicPartition
from strandline.records.batch import parse_header, split_batches
from strandline.records.codec import NewRecord, decode_batch, encode_batch
from strandline.rpc.convert.by_name import As, ByName
from strandline.v1 import coordinator_record_pb2 as pb

_NO_LIMIT_BYTES = 1 << 30
"""Even a batch that is too large is encoded, so that its coordinator can report its size."""


class ProtoRecords:
    """The codec of a data node (`core.coordinator.records.RecordCodec`)."""

    def encode(self, records: Batch, unix_ms: int) -> EncodedBatch:
        """Encode the records as one batch with this timestamp."""
        rows = [_encoded(record) for record in records]
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
                found.append(DecodedRecord(_decoded(key, value, row.offset), len(key) + len(value or b"")))
        return tuple(found)


class _Form(NamedTuple):
    """How one kind of record is written: its field in both messages, and the converters of key and value."""

    field: str
    key: ByName[Any, Any]
    value: ByName[Any, Any]


def _write_topics(partitions: Iterable[TopicPartition]) -> list[pb.TargetTopic]:
    return [
        pb.TargetTopic(topic_id=topic_id, partitions=[tp.partition for tp in of])
        for topic_id, of in groupby(partitions, key=lambda tp: tp.topic_id)
    ]


def _read_topics(topics: Iterable[pb.TargetTopic]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic_id, index) for topic in topics for index in topic.partitions)


_STATES: Mapping[MemberState, pb.GroupMemberState.ValueType] = {
    MemberState.STABLE: pb.GROUP_MEMBER_STATE_STABLE,
    MemberState.UNREVOKED: pb.GROUP_MEMBER_STATE_UNREVOKED,
    MemberState.UNRELEASED: pb.GROUP_MEMBER_STATE_UNRELEASED,
    MemberState.AWAY: pb.GROUP_MEMBER_STATE_AWAY,
    MemberState.FENCED: pb.GROUP_MEMBER_STATE_FENCED,
}
_STATE_OF = {number: state for state, number in _STATES.items()}


def _write_held(held: Iterable[AssignedPartition]) -> list[pb.AssignedTopic]:
    topics = []
    for topic_id, of in groupby(held, key=lambda each: each.tp.topic_id):
        rows = list(of)
        partitions, epochs = [each.tp.partition for each in rows], [each.epoch for each in rows]
        topics.append(pb.AssignedTopic(topic_id=topic_id, partitions=partitions, epochs=epochs))
    return topics


def _read_held(topics: Iterable[pb.AssignedTopic]) -> tuple[AssignedPartition, ...]:
    return tuple(
        AssignedPartition(TopicPartition(topic.topic_id, index), epoch)
        for topic in topics
        for index, epoch in zip(topic.partitions, topic.epochs, strict=True)
    )


_TXN_STATES: Mapping[TxnState, pb.TransactionState.ValueType] = {
    TxnState.EMPTY: pb.TRANSACTION_STATE_EMPTY,
    TxnState.ONGOING: pb.TRANSACTION_STATE_ONGOING,
    TxnState.PREPARE_COMMIT: pb.TRANSACTION_STATE_PREPARE_COMMIT,
    TxnState.PREPARE_ABORT: pb.TRANSACTION_STATE_PREPARE_ABORT,
    TxnState.COMPLETE_COMMIT: pb.TRANSACTION_STATE_COMPLETE_COMMIT,
    TxnState.COMPLETE_ABORT: pb.TRANSACTION_STATE_COMPLETE_ABORT,
}
_TXN_STATE_OF = {number: state for state, number in _TXN_STATES.items()}


_OFFSET = ByName(OffsetValue, pb.CommittedOffset, commit_ms="commit_timestamp_ms")
_IDENTITY = ByName(ProducerIdentity, pb.ProducerIdentity)
_TOPICS = As("topics", _write_topics, _read_topics)

_FORMS: Mapping[type[Any], _Form] = {
    OffsetKey: _Form("committed_offset", ByName(OffsetKey, pb.CommittedOffsetKey), _OFFSET),
    GroupKey: _Form("group", ByName(GroupKey, pb.GroupKey), ByName(GroupValue, pb.GroupRecord)),
    MemberKey: _Form("member", ByName(MemberKey, pb.GroupMemberKey), ByName(MemberValue, pb.GroupMemberRecord)),
    TargetEpochKey: _Form(
        "target_epoch", ByName(TargetEpochKey, pb.GroupKey), ByName(TargetEpochValue, pb.TargetEpochRecord)
    ),
    TargetKey: _Form(
        "target", ByName(TargetKey, pb.GroupMemberKey), ByName(TargetValue, pb.TargetRecord, partitions=_TOPICS)
    ),
    CurrentKey: _Form(
        "current",
        ByName(CurrentKey, pb.GroupMemberKey),
        ByName(
            CurrentValue,
            pb.CurrentRecord,
            state=As("state", _STATES.__getitem__, _STATE_OF.__getitem__),
            assigned=As("assigned", _write_held, _read_held),
            revoking=As("revoking", _write_held, _read_held),
        ),
    ),
    StagedOffsetKey: _Form(
        "staged_offset",
        ByName(StagedOffsetKey, pb.StagedOffsetKey),
        ByName(StagedOffsetValue, pb.StagedOffset, offset=_OFFSET),
    ),
    ProducerFenceKey: _Form(
        "producer_fence", ByName(ProducerFenceKey, pb.ProducerFenceKey), ByName(ProducerFenceValue, pb.ProducerFence)
    ),
    TransactionalIdKey: _Form(
        "transactional_id",
        ByName(TransactionalIdKey, pb.TransactionalIdKey),
        ByName(
            TransactionalId,
            pb.TransactionalIdRecord,
            identity=As("producer", _IDENTITY.write, _IDENTITY.read),
            previous=_IDENTITY,
            state=As("state", _TXN_STATES.__getitem__, _TXN_STATE_OF.__getitem__),
            partitions=_TOPICS,
        ),
    ),
}
_FORM_OF = {form.field: form for form in _FORMS.values()}


def _encoded(record: Record) -> tuple[bytes, bytes | None]:
    form = _FORMS[type(record.key)]
    key = pb.CoordinatorRecordKey(**{form.field: form.key.write(record.key)}).SerializeToString(deterministic=True)
    if record.value is None:
        return key, None
    value = pb.CoordinatorRecordValue(**{form.field: form.value.write(record.value)})
    return key, value.SerializeToString(deterministic=True)


def _decoded(key: bytes, value: bytes | None, offset: Offset) -> Record:
    try:
        read = pb.CoordinatorRecordKey.FromString(key)
        given = None if value is None else pb.CoordinatorRecordValue.FromString(value)
    except DecodeError as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the record at {offset} is not a record of a coordinator") from error
    kind = read.WhichOneof("key")
    if kind is None or (given is not None and given.WhichOneof("value") != kind):
        message = f"the record at {offset} is of a kind that this release does not know; run a newer one"
        raise Refused(ErrorCode.INVALID_RECORD, message)
    form = _FORM_OF[kind]
    try:
        return Record(
            form.key.read(getattr(read, kind)), None if given is None else form.value.read(getattr(given, kind))
        )
    except (KeyError, ValueError) as error:
        raise Refused(ErrorCode.INVALID_RECORD, f"the record at {offset} has a value that cannot be") from error
