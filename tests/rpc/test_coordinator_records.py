"""Records of coordinators as bytes: what is decoded is what was encoded, and anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.coordinator.records import Record
from strandline.core.errors import ErrorCode, Refused
from strandline.core.group_offsets import OffsetKey, OffsetValue
from strandline.core.types import LeaderEpoch, Offset
from strandline.records.batch import check_one_batch, stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.coordinator_records import ProtoRecords
from strandline.v1 import coordinator_record_pb2 as pb

NUMBERS = st.integers(0, 2**31 - 1)
LONG = st.integers(0, 2**63 - 1)
TEXT = st.text(max_size=20)
VALUES = st.builds(
    OffsetValue,
    LONG.map(Offset),
    st.one_of(st.none(), NUMBERS.map(LeaderEpoch)),
    TEXT,
    LONG,
    LONG,
)
RECORDS = st.builds(Record, st.builds(OffsetKey, TEXT, TEXT, NUMBERS), st.one_of(st.none(), VALUES))


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


KEY = pb.CoordinatorRecordKey(committed_offset=pb.CommittedOffsetKey(group_id="g")).SerializeToString()


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (_batch(b"\xff", b""), ErrorCode.CORRUPT_MESSAGE),
        (_batch(KEY, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        (_batch(b"", b""), ErrorCode.INVALID_RECORD),
        (_batch(KEY, b""), ErrorCode.INVALID_RECORD),
        (_batch(KEY, None)[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["key", "value", "another kind", "another kind of value", "crc"],
)
def test_what_this_release_cannot_read_is_refused(payload: bytes, code: ErrorCode) -> None:
    """Neither guessed nor left out: state that is folded without it would be another."""
    with pytest.raises(Refused) as error:
        ProtoRecords().decode(payload)

    assert error.value.refusal.code is code
