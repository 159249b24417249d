"""The rules for a produce payload: one batch, its header, and whose it is."""

from __future__ import annotations

import struct

import crc32c
import pytest
from hypothesis import given, strategies as st

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import ProducerStamp
from strandline.records import batch as records_batch
from strandline.records.codec import NewRecord, encode_batch
from strandline.records.compression import Compression

FIELDS = {
    "length": (8, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp_ms": (27, ">q"),
    "max_timestamp_ms": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def batch_of(count: int = 3, *, producer_id: int | None = None, **fields: int) -> bytes:
    """A batch of ``count`` records with header fields overwritten; the CRC is valid unless it is overwritten too."""
    records = [NewRecord(b"k", b"v%d" % number, 1_000 + number) for number in range(count)]
    batch = bytearray(
        encode_batch(records, producer_id=producer_id, producer_epoch=0 if producer_id else -1, base_sequence=0)
    )
    crc = fields.pop("crc", None)
    for name, value in fields.items():
        at, form = FIELDS[name]
        struct.pack_into(form, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(memoryview(batch)[21:]) if crc is None else crc)
    return bytes(batch)


def stamped(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """The batch as a leader stores it."""
    buffer = bytearray(batch)
    records_batch.stamp(buffer, base_offset, leader_epoch)
    return bytes(buffer)


def refusal_of(payload: bytes) -> Refusal:
    """Why a produce payload is rejected."""
    with pytest.raises(Refused) as refused:
        records_batch.check_one_batch(payload)
    assert refused.value.refusal.outcome is Outcome.NOT_APPENDED
    return refused.value.refusal


def test_header_says_what_the_records_are() -> None:
    """Count, size, timestamps and producer are read from the header alone."""
    payload = batch_of(4, producer_id=77)
    header = records_batch.parse_header(payload)

    assert (header.record_count, header.size_bytes) == (4, len(payload))
    assert header.max_timestamp_ms == 1_003
    assert header.producer == (77, 0, 0)


def test_an_absent_producer_is_none() -> None:
    """An absent producer is None; Kafka's -1 exists on the wire only."""
    assert records_batch.parse_header(batch_of()).producer is None


_CODEC = "is unknown; use 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd"
_TOO_LARGE = f"is above the limit of {records_batch.MAX_BATCH_BYTES} bytes; send smaller batches"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"magic": 1}, ErrorCode.CORRUPT_MESSAGE, "magic 1 must be 2; encode with Kafka's record batch v2"),
        ({"crc": 1}, ErrorCode.CORRUPT_MESSAGE, "crc 0x00000001 is not the CRC-32C of the batch; encode and send it"),
        ({"record_count": -1}, ErrorCode.INVALID_RECORD, "record count -1 must be positive; count the records"),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD, "record count 0 must be positive"),
        ({"record_count": 7}, ErrorCode.INVALID_RECORD, "must be record count 7 - 1"),
        ({"last_offset_delta": 5}, ErrorCode.INVALID_RECORD, "last offset delta 5 must be record count"),
        ({"attributes": records_batch.CONTROL_BIT}, ErrorCode.INVALID_RECORD, "control bit is set; clients must not"),
        ({"attributes": records_batch.TRANSACTIONAL_BIT}, ErrorCode.INVALID_RECORD, "transactional bit is set without"),
        ({"attributes": 5}, ErrorCode.INVALID_RECORD, f"compression codec 5 {_CODEC}"),
        ({"attributes": 7}, ErrorCode.INVALID_RECORD, f"compression codec 7 {_CODEC}"),
        ({"producer_id": 9, "producer_epoch": -1}, ErrorCode.INVALID_RECORD, "producer id 9, epoch -1 and base"),
        ({"producer_id": 9, "producer_epoch": 0, "base_sequence": -1}, ErrorCode.INVALID_RECORD, "must all be set"),
        ({"producer_id": -2}, ErrorCode.INVALID_RECORD, "producer id -2"),
        ({"max_timestamp_ms": -2}, ErrorCode.INVALID_TIMESTAMP, "..-2 ms must be -1 (none) or not negative"),
        ({"length": 48}, ErrorCode.CORRUPT_MESSAGE, "a batch of 60 bytes, less than the header's"),
        ({"length": -1}, ErrorCode.CORRUPT_MESSAGE, "a batch of 11 bytes, less than the header's"),
        ({"length": 10_000}, ErrorCode.CORRUPT_MESSAGE, "length prefix gives a batch of 10012 bytes, but"),
        ({"length": records_batch.MAX_BATCH_BYTES}, ErrorCode.MESSAGE_TOO_LARGE, _TOO_LARGE),
        ({"length": (1 << 31) - 1}, ErrorCode.MESSAGE_TOO_LARGE, _TOO_LARGE),
    ],
)
def test_each_breach_has_its_code_and_its_sentence(fields: dict[str, int], code: ErrorCode, words: str) -> None:
    """A batch with one wrong header field is rejected, definitely not appended, with field, rule and remedy."""
    refusal = refusal_of(batch_of(**fields))

    assert refusal.code is code
    assert words in refusal.message


@pytest.mark.parametrize(
    ("payload", "code", "words"),
    [
        (b"", ErrorCode.INVALID_RECORD, "records hold no batch; send one"),
        (b"\0" * 11, ErrorCode.CORRUPT_MESSAGE, "length prefix needs 12 bytes, 11 are left"),
        (b"\0" * 60, ErrorCode.CORRUPT_MESSAGE, "less than the header's"),
        (b"x" * 80, ErrorCode.MESSAGE_TOO_LARGE, "send smaller batches"),
        (batch_of()[:-1], ErrorCode.CORRUPT_MESSAGE, "are left; send whole batches"),
        (batch_of() + b"\0", ErrorCode.INVALID_RECORD, "more than one batch; send one per partition"),
        (batch_of() * 2, ErrorCode.INVALID_RECORD, "more than one batch; send one per partition"),
    ],
)
def test_what_is_not_one_batch_is_refused(payload: bytes, code: ErrorCode, words: str) -> None:
    """No batch, less than one, a wrong length prefix, and bytes or a batch after the first are rejected."""
    refusal = refusal_of(payload)

    assert refusal.code is code
    assert words in refusal.message


def test_largest_batch_is_accepted_and_one_byte_more_is_not() -> None:
    """The limit is 1,048,588 bytes with the length prefix, as in Kafka."""
    filler = records_batch.MAX_BATCH_BYTES - len(encode_batch([NewRecord(None, b"v" * 1_000_000, 1)]))
    largest = encode_batch([NewRecord(None, b"v" * (1_000_000 + filler), 1)])

    assert len(largest) == records_batch.MAX_BATCH_BYTES
    assert records_batch.check_one_batch(largest).size_bytes == records_batch.MAX_BATCH_BYTES
    with pytest.raises(Refused) as refused:
        records_batch.split_batches(largest, records_batch.MAX_BATCH_BYTES - 1)
    assert refused.value.refusal.code is ErrorCode.MESSAGE_TOO_LARGE


def test_payload_may_hold_several_batches() -> None:
    """Batches are split by their length prefixes, without copying."""
    parts = [batch_of(1), batch_of(2), batch_of(3)]
    batches = records_batch.split_batches(b"".join(parts))

    assert [bytes(view) for _, view in batches] == parts
    assert [header.record_count for header, _ in batches] == [1, 2, 3]


def test_stamp_does_not_touch_the_crc() -> None:
    """Base offset and leader epoch lie outside the CRC, so a stamped batch is still valid."""
    batch = batch_of()
    buffer = bytearray(batch)
    records_batch.stamp(buffer, 120, 7)
    header = records_batch.check_batch(memoryview(buffer))

    assert (header.base_offset, header.leader_epoch, header.next_offset) == (120, 7, 123)
    assert buffer[16:] == batch[16:]
    assert bytes(buffer[:16]) == records_batch.stamp_prefix(len(batch), 120, 7)


def test_replicated_batches_are_dense_and_epochs_never_fall() -> None:
    """A follower accepts only a batch that continues its log (M4)."""
    payload = stamped(batch_of(2), 10, 3) + stamped(batch_of(1), 12, 3) + stamped(batch_of(1), 13, 5)

    assert [header.leader_epoch for header, _ in records_batch.check_replicated(payload, 10, 3)] == [3, 3, 5]


@pytest.mark.parametrize(
    ("payload", "last_epoch"),
    [
        (stamped(batch_of(2), 11, 3), 3),
        (stamped(batch_of(2), 9, 3), 3),
        (stamped(batch_of(2), 10, 2), 3),
        (stamped(batch_of(2), 10, -1), -1),
        (stamped(batch_of(2), 10, 3) + stamped(batch_of(2), 13, 3), 3),
        (stamped(batch_of(2), 10, 3) + stamped(batch_of(2), 12, 2), 3),
        (stamped(batch_of(2, crc=5), 10, 3), 3),
        (stamped(batch_of(2, record_count=3), 10, 3), 3),
    ],
)
def test_replicated_batches_out_of_place_are_refused(payload: bytes, last_epoch: int) -> None:
    """A gap, a repetition, a falling epoch or damage is CORRUPT_MESSAGE, and the follower fetches again."""
    with pytest.raises(Refused) as refused:
        records_batch.check_replicated(payload, 10, last_epoch)

    assert refused.value.refusal.code is ErrorCode.CORRUPT_MESSAGE


@given(st.integers(min_value=0, max_value=records_batch.HEADER_BYTES + 20), st.integers(0, 255))
def test_any_changed_byte_behind_the_stamp_is_noticed(at: int, value: int) -> None:
    """The CRC or the length prefix detects every changed byte except those a leader writes."""
    batch = bytearray(batch_of())
    at %= len(batch)
    changed = batch[at] != value
    batch[at] = value
    is_stamp = at < 8 or 12 <= at < 16
    try:
        records_batch.check_one_batch(bytes(batch))
        accepted = True
    except Refused:
        accepted = False

    assert accepted == (is_stamp or not changed)
    assert accepted is False or records_batch.parse_header(batch).size_bytes == len(batch)


# A partition of a produce holds exactly one batch.


def _batch(count: int, base_offset: int = 0) -> bytes:
    plain = bytearray(encode_batch([NewRecord(None, b"v%d" % index, 5) for index in range(count)]))
    records_batch.stamp(plain, base_offset, 3)
    return bytes(plain)


# A batch under another producer's identity.


RECORDS = [NewRecord(b"k", b"v" * 100, 5), NewRecord(None, b"w" * 100, 6, [("h", b"1")])]


@pytest.mark.parametrize("compression", list(Compression))
def test_identity_set_later_is_identity_built_in(compression: Compression) -> None:
    """The bytes equal those of a batch that was encoded with the identity, CRC included."""
    plain = encode_batch(RECORDS, compression=compression)
    later = b"".join(records_batch.sealed(plain, ProducerStamp(7, 2, 40)))
    built_in = encode_batch(RECORDS, compression=compression, producer_id=7, producer_epoch=2, base_sequence=40)

    assert later == built_in
    assert records_batch.check_batch(memoryview(later)).producer == (7, 2, 40)
    assert b"".join(records_batch.sealed(later, ProducerStamp(-1, -1, -1))) == plain
    assert b"".join(records_batch.sealed(later, None)) == later
