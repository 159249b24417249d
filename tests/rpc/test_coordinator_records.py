"""Records of coordinators as bytes: what is decoded is what was encoded, and anything else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from strandline.core.coordinator.machine import Record
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
from strandline.records.batch import check_one_batch, stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.convert.coordinator_records import ProtoRecords
from strandline.v1 import coordinator_record_pb2 as pb

NUMBERS = st.integers(0, 2**31 - 1)
LONG = st.integers(0, 2**63 - 1)
TEXT = st.text(max_size=20)
MAYBE = st.none() | TEXT
TPS = st.lists(st.builds(TopicPartition, TEXT, NUMBERS), max_size=5, unique=True).map(lambda tps: tuple(sorted(tps)))
HELD = TPS.flatmap(
    lambda tps: st.lists(NUMBERS, min_size=len(tps), max_size=len(tps)).map(
        lambda epochs: tuple(AssignedPartition(tp, epoch) for tp, epoch in zip(tps, epochs, strict=True))
    )
)
OFFSETS = st.builds(OffsetValue, LONG.map(Offset), st.none() | NUMBERS.map(LeaderEpoch), TEXT, LONG, LONG)
SAID = st.builds(
    MemberValue,
    session_timeout_ms=NUMBERS,
    rebalance_timeout_ms=NUMBERS,
    instance_id=MAYBE,
    rack_id=MAYBE,
    client_id=TEXT,
    client_host=TEXT,
    topic_names=st.lists(TEXT, max_size=3).map(tuple),
    topic_regex=MAYBE,
    assignor=MAYBE,
)
CURRENT = st.builds(CurrentValue, NUMBERS, NUMBERS, st.sampled_from(MemberState), HELD, HELD, st.none() | NUMBERS)
IDENTITY = st.builds(ProducerIdentity, LONG, st.integers(0, 32_767))
TRANSACTIONAL_ID = st.builds(
    TransactionalId,
    identity=IDENTITY,
    previous=st.none() | IDENTITY,
    next_producer_id=st.none() | LONG,
    timeout_ms=NUMBERS,
    state=st.sampled_from(TxnState),
    partitions=TPS,
    start_ms=st.none() | LONG,
    update_ms=LONG,
)
RECORDS = st.one_of(
    st.builds(Record, key, st.none() | value)
    for key, value in (
        (st.builds(OffsetKey, TEXT, TEXT, NUMBERS), OFFSETS),
        (st.builds(GroupKey, TEXT), st.builds(GroupValue, NUMBERS, LONG, st.none() | LONG)),
        (st.builds(MemberKey, TEXT, TEXT), SAID),
        (st.builds(TargetEpochKey, TEXT), st.builds(TargetEpochValue, NUMBERS, TEXT, st.integers(0, 2**56))),
        (st.builds(TargetKey, TEXT, TEXT), st.builds(TargetValue, NUMBERS, TPS)),
        (st.builds(CurrentKey, TEXT, TEXT), CURRENT),
        (st.builds(StagedOffsetKey, TEXT, TEXT, NUMBERS, LONG), st.builds(StagedOffsetValue, NUMBERS, OFFSETS)),
        (st.builds(ProducerFenceKey, LONG), st.builds(ProducerFenceValue, NUMBERS, NUMBERS, LONG)),
        (st.builds(TransactionalIdKey, TEXT), TRANSACTIONAL_ID),
    )
)


@given(st.lists(st.lists(RECORDS, min_size=1, max_size=4), min_size=1, max_size=3))
def test_what_is_decoded_is_what_was_encoded(batches: list[list[Record]]) -> None:
    """Over several batches one after another, as a log has them; each is a batch that a leader appends."""
    codec = ProtoRecords()
    payload, sizes, at = b"", [], 0
    for records in batches:
        encoded = codec.encode(tuple(records), 1_700_000_000_000)
        assert isinstance(encoded.payload, memoryview)
        assert check_one_batch(encoded.payload) == encoded.header
        assert encoded.header.record_count == len(records)
        stamped = bytearray(encoded.payload)
        stamp(stamped, at, 4)
        payload, at = payload + bytes(stamped), at + len(records)
        sizes += encoded.sizes
    found = codec.decode(payload)

    assert [record for record, _ in found] == [record for records in batches for record in records]
    assert [size for _, size in found] == sizes


def test_sizes_are_those_of_the_records_bytes() -> None:
    """What a sweep counts as live grows with the text that was committed."""
    codec = ProtoRecords()
    short, long = (
        codec.encode((Record(OffsetKey("g", "t", 0), OffsetValue(Offset(1), None, text, 1, 1)),), 1).sizes[0]
        for text in ("", "x" * 100)
    )

    assert long - short == 102


def _batch(key: bytes, value: bytes | None) -> bytes:
    return encode_batch([NewRecord(key, value, 1)])


def _current(**fields: Any) -> bytes:
    return pb.CoordinatorRecordValue(current=pb.CurrentRecord(**fields)).SerializeToString()


CURRENT_KEY = pb.CoordinatorRecordKey(current=pb.GroupMemberKey(group_id="g")).SerializeToString()
TRANSACTIONAL_KEY = pb.CoordinatorRecordKey(
    transactional_id=pb.TransactionalIdKey(transactional_id="i")
).SerializeToString()
TRANSACTIONAL_VALUE = pb.CoordinatorRecordValue(
    transactional_id=pb.TransactionalIdRecord(timeout_ms=1)
).SerializeToString()
KEY = pb.CoordinatorRecordKey(committed_offset=pb.CommittedOffsetKey(group_id="g")).SerializeToString()


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (_batch(b"\xff", b""), ErrorCode.CORRUPT_MESSAGE),
        (_batch(KEY, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        (_batch(b"", b""), ErrorCode.INVALID_RECORD),
        (_batch(KEY, b""), ErrorCode.INVALID_RECORD),
        (_batch(KEY, None)[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (_batch(CURRENT_KEY, _current(state=9)), ErrorCode.INVALID_RECORD),
        (_batch(CURRENT_KEY, _current(assigned=[{"partitions": [1], "epochs": []}])), ErrorCode.INVALID_RECORD),
        (_batch(TRANSACTIONAL_KEY, TRANSACTIONAL_VALUE), ErrorCode.INVALID_RECORD),
    ],
    ids=["key", "value", "another kind", "another kind of value", "crc", "state", "epochs", "transaction's state"],
)
def test_what_this_release_cannot_read_is_refused(payload: bytes, code: ErrorCode) -> None:
    """Neither guessed nor left out: state that is folded without it would be another."""
    with pytest.raises(Refused) as error:
        ProtoRecords().decode(payload)

    assert error.value.refusal.code is code
