"""What a leader looks at in the bytes it takes and gives, and nothing more."""

from __future__ import annotations

import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset, TopicPartition
from strandline.leader.reading import decode_records, encode_records
from strandline.leader.sent import end_of_batches
from strandline.records.batch import check_one_batch, stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.v1 import record_pb2


def _batch(count: int, base_offset: int = 0) -> bytes:
    plain = bytearray(encode_batch([NewRecord(None, b"v%d" % index, 5) for index in range(count)]))
    stamp(plain, base_offset, 3)
    return bytes(plain)


def test_exactly_one_batch_is_taken() -> None:
    """Its header comes back as the core knows it."""
    header = check_one_batch(_batch(4))

    assert (header.record_count, header.size_bytes) == (4, len(_batch(4)))


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (_batch(1) * 2, ErrorCode.INVALID_RECORD),
        (b"x" * 80, ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["none", "two", "noise"],
)
def test_anything_else_is_refused(payload: bytes, code: ErrorCode) -> None:
    """None, two, or a length prefix that lies."""
    with pytest.raises(Refused) as caught:
        check_one_batch(payload)

    assert caught.value.refusal.code is code


def test_an_answers_end_is_that_of_its_last_batch() -> None:
    """Read from the bytes themselves, whatever their number."""
    assert end_of_batches(_batch(3, 10)) == 13
    assert end_of_batches(_batch(3, 10) + _batch(1, 13) + _batch(5, 14)) == 19


def test_records_go_in_as_messages_and_come_out_as_messages() -> None:
    """From the offset asked for, with the epoch of their batch."""
    messages = [record_pb2.SimpleRecord(value=value, timestamp_ms=7) for value in (b"a", b"b", b"c")]
    stored = bytearray(encode_records(messages))
    stamp(stored, 20, 4)
    tp = TopicPartition("id", 0)
    found = decode_records([(tp, bytes(stored))], {tp: Offset(21)})[tp]

    assert found.refusal is None
    assert [(row.value, row.offset, row.leader_epoch, row.timestamp_ms) for row in found.records] == [
        (b"b", 21, 4, 7),
        (b"c", 22, 4, 7),
    ]
