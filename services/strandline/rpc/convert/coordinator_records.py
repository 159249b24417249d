"""Records of coordinators as bytes: keys and values in protobuf, in record batches like any other (G4).

Invariant: decoding what was encoded gives the same records; fields that a later release added are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from strandline.core.types import LeaderEpoch, Offset, TopicPartition
from strandline.records.batch import parse_header, split_batches
from strandline.records.codec import NewRecord, decode_batch, encode_batch
from strandline.v1 import coordinator_record_pb2 as pb

_NO_LIMIT_BYTES = 1 << 30
"""A batch that is too large is encoded, so that its coordinator can say how large it is."""


class ProtoRecords:
    """The codec of a data node (`core.coordinator.records.RecordCodec`)."""

    def encode(self, records: Batch, unix_ms: int) -> EncodedBatch:
        """One batch."""
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
    """How one kind of record is written: the field of both messages, and four conversions."""

    field: str
    write_key: Callable[[Any], Any]
    read_key: Callable[[Any], Any]
    write_value: Callable[[Any], Any]
    read_value: Callable[[Any], Any]


def _write_group(key: GroupKey | TargetEpochKey) -> pb.GroupKey:
    return pb.GroupKey(group_id=key.group_id)


def _write_member(key: MemberKey | TargetKey | CurrentKey) -> pb.GroupMemberKey:
    return pb.GroupMemberKey(group_id=key.group_id, member_id=key.member_id)


def _write_offset_key(key: OffsetKey) -> pb.CommittedOffsetKey:
    return pb.CommittedOffsetKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _read_offset_key(key: pb.CommittedOffsetKey) -> OffsetKey:
    return OffsetKey(key.group_id, key.topic_id, key.partition)


def _write_offset(value: OffsetValue) -> pb.CommittedOffset:
    return pb.CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_ms,
        order=value.order,
    )


def _read_offset(row: pb.CommittedOffset) -> OffsetValue:
    epoch = LeaderEpoch(row.leader_epoch) if row.HasField("leader_epoch") else None
    return OffsetValue(Offset(row.offset), epoch, row.metadata, row.commit_timestamp_ms, row.order)


def _write_staged_key(key: StagedOffsetKey) -> pb.StagedOffsetKey:
    return pb.StagedOffsetKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition, producer_id=key.producer_id
    )


def _read_staged_key(key: pb.StagedOffsetKey) -> StagedOffsetKey:
    return StagedOffsetKey(key.group_id, key.topic_id, key.partition, key.producer_id)


def _write_staged(value: StagedOffsetValue) -> pb.StagedOffset:
    return pb.StagedOffset(producer_epoch=value.producer_epoch, offset=_write_offset(value.offset))


def _read_staged(row: pb.StagedOffset) -> StagedOffsetValue:
    return StagedOffsetValue(row.producer_epoch, _read_offset(row.offset))


def _write_fence(value: ProducerFenceValue) -> pb.ProducerFence:
    return pb.ProducerFence(
        producer_epoch=value.producer_epoch, coordinator_epoch=value.coordinator_epoch, update_ms=value.update_ms
    )


def _read_fence(row: pb.ProducerFence) -> ProducerFenceValue:
    return ProducerFenceValue(row.producer_epoch, row.coordinator_epoch, row.update_ms)


def _write_group_value(value: GroupValue) -> pb.GroupRecord:
    return pb.GroupRecord(group_epoch=value.group_epoch, order=value.order, empty_since_ms=value.empty_since_ms)


def _read_group_value(row: pb.GroupRecord) -> GroupValue:
    return GroupValue(row.group_epoch, row.order, row.empty_since_ms if row.HasField("empty_since_ms") else None)


def _write_said(value: MemberValue) -> pb.GroupMemberRecord:
    return pb.GroupMemberRecord(
        session_timeout_ms=value.session_timeout_ms,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=value.topic_names,
        topic_regex=value.topic_regex,
        assignor=value.assignor,
    )


def _read_said(row: pb.GroupMemberRecord) -> MemberValue:
    return MemberValue(
        session_timeout_ms=row.session_timeout_ms,
        rebalance_timeout_ms=row.rebalance_timeout_ms,
        instance_id=row.instance_id if row.HasField("instance_id") else None,
        rack_id=row.rack_id if row.HasField("rack_id") else None,
        client_id=row.client_id,
        client_host=row.client_host,
        topic_names=tuple(row.topic_names),
        topic_regex=row.topic_regex if row.HasField("topic_regex") else None,
        assignor=row.assignor if row.HasField("assignor") else None,
    )


def _write_target_epoch(value: TargetEpochValue) -> pb.TargetEpochRecord:
    return pb.TargetEpochRecord(epoch=value.epoch, assignor=value.assignor, topics_digest=value.topics_digest)


def _read_target_epoch(row: pb.TargetEpochRecord) -> TargetEpochValue:
    return TargetEpochValue(row.epoch, row.assignor, row.topics_digest)


def _write_topics(partitions: Iterable[TopicPartition]) -> list[pb.TargetTopic]:
    return [
        pb.TargetTopic(topic_id=topic_id, partitions=[tp.partition for tp in of])
        for topic_id, of in groupby(partitions, key=lambda tp: tp.topic_id)
    ]


def _read_topics(topics: Iterable[pb.TargetTopic]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic_id, index) for topic in topics for index in topic.partitions)


def _write_target(value: TargetValue) -> pb.TargetRecord:
    return pb.TargetRecord(epoch=value.epoch, topics=_write_topics(value.partitions))


def _read_target(row: pb.TargetRecord) -> TargetValue:
    return TargetValue(row.epoch, _read_topics(row.topics))


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


def _write_current(value: CurrentValue) -> pb.CurrentRecord:
    return pb.CurrentRecord(
        member_epoch=value.member_epoch,
        previous_epoch=value.previous_epoch,
        state=_STATES[value.state],
        assigned=_write_held(value.assigned),
        revoking=_write_held(value.revoking),
        lease_ms=value.lease_ms,
    )


def _read_current(row: pb.CurrentRecord) -> CurrentValue:
    return CurrentValue(
        row.member_epoch,
        row.previous_epoch,
        _STATE_OF[row.state],
        _read_held(row.assigned),
        _read_held(row.revoking),
        row.lease_ms if row.HasField("lease_ms") else None,
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


def _write_identity(identity: ProducerIdentity | None) -> pb.ProducerIdentity | None:
    if identity is None:
        return None
    return pb.ProducerIdentity(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)


def _write_transactional_id(value: TransactionalId) -> pb.TransactionalIdRecord:
    return pb.TransactionalIdRecord(
        producer=_write_identity(value.identity),
        previous=_write_identity(value.previous),
        next_producer_id=value.next_producer_id,
        timeout_ms=value.timeout_ms,
        state=_TXN_STATES[value.state],
        topics=_write_topics(value.partitions),
        start_ms=value.start_ms,
        update_ms=value.update_ms,
    )


def _read_identity(row: pb.ProducerIdentity) -> ProducerIdentity:
    return ProducerIdentity(row.producer_id, row.producer_epoch)


def _read_transactional_id(row: pb.TransactionalIdRecord) -> TransactionalId:
    return TransactionalId(
        identity=_read_identity(row.producer),
        previous=_read_identity(row.previous) if row.HasField("previous") else None,
        next_producer_id=row.next_producer_id if row.HasField("next_producer_id") else None,
        timeout_ms=row.timeout_ms,
        state=_TXN_STATE_OF[row.state],
        partitions=_read_topics(row.topics),
        start_ms=row.start_ms if row.HasField("start_ms") else None,
        update_ms=row.update_ms,
    )


_FORMS: Mapping[type[Any], _Form] = {
    OffsetKey: _Form("committed_offset", _write_offset_key, _read_offset_key, _write_offset, _read_offset),
    GroupKey: _Form("group", _write_group, lambda key: GroupKey(key.group_id), _write_group_value, _read_group_value),
    MemberKey: _Form(
        "member", _write_member, lambda key: MemberKey(key.group_id, key.member_id), _write_said, _read_said
    ),
    TargetEpochKey: _Form(
        "target_epoch",
        _write_group,
        lambda key: TargetEpochKey(key.group_id),
        _write_target_epoch,
        _read_target_epoch,
    ),
    TargetKey: _Form(
        "target", _write_member, lambda key: TargetKey(key.group_id, key.member_id), _write_target, _read_target
    ),
    CurrentKey: _Form(
        "current", _write_member, lambda key: CurrentKey(key.group_id, key.member_id), _write_current, _read_current
    ),
    StagedOffsetKey: _Form("staged_offset", _write_staged_key, _read_staged_key, _write_staged, _read_staged),
    ProducerFenceKey: _Form(
        "producer_fence",
        lambda key: pb.ProducerFenceKey(producer_id=key.producer_id),
        lambda key: ProducerFenceKey(key.producer_id),
        _write_fence,
        _read_fence,
    ),
    TransactionalIdKey: _Form(
        "transactional_id",
        lambda key: pb.TransactionalIdKey(transactional_id=key.transactional_id),
        lambda key: TransactionalIdKey(key.transactional_id),
        _write_transactional_id,
        _read_transactional_id,
    ),
}
_FORM_OF = {form.field: form for form in _FORMS.values()}


def _encoded(record: Record) -> tuple[bytes, bytes | None]:
    form = _FORMS[type(record.key)]
    key = pb.CoordinatorRecordKey(**{form.field: form.write_key(record.key)}).SerializeToString(deterministic=True)
    if record.value is None:
        return key, None
    value = pb.CoordinatorRecordValue(**{form.field: form.write_value(record.value)})
    return key, value.SerializeToString(deterministic=True)


def _decoded(key: bytes, value: bytes | None, offset: Offset) -> Record:
    try:
        read = pb.CoordinatorRecordKey.FromString(key)
        given = None if value is None else pb.CoordinatorRecordValue.FromString(value)
    except DecodeError as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the record at {offset} is no record of a coordinator") from error
    kind = read.WhichOneof("key")
    if kind is None or (given is not None and given.WhichOneof("value") != kind):
        message = f"the record at {offset} is of a kind that this release does not know; run a newer one"
        raise Refused(ErrorCode.INVALID_RECORD, message)
    form = _FORM_OF[kind]
    try:
        return Record(
            form.read_key(getattr(read, kind)), None if given is None else form.read_value(getattr(given, kind))
        )
    except (KeyError, ValueError) as error:
        raise Refused(ErrorCode.INVALID_RECORD, f"the record at {offset} has a value that cannot be") from error
