"""The project's batches and those of aiokafka and kafka-python are byte-identical and readable by each other."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch, DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, strategies as st

from strandline.core.errors import ErrorCode, Refused
from strandline.records.batch import check_batch, parse_header, split_batches, stamp
from strandline.records.builder import BatchBuilder
from strandline.records.codec import NewRecord, Record, decode_batch, decode_trusted_batch, encode_batch
from strandline.records.compression import Compression

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaBatch, DefaultRecordBatchBuilder as KafkaBuilder

GOLDEN = [
    NewRecord(b"key", b"value", 1_700_000_000_000),
    NewRecord(None, b"no key", 1_700_000_000_007, (("trace", b"\x00\x01"), ("empty", b""), ("none", None))),
    NewRecord(b"", None, 1_700_000_000_003),
]
# fmt: off
GOLDEN_BYTES = bytes.fromhex(
    "0000000000000000"  # base offset
    "0000006a"  # length
    "ffffffff"  # leader epoch: none yet
    "02"  # magic
    "4fa1d8a6"  # CRC-32C of what follows
    "0000"  # attributes
    "00000002"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56807"  # max timestamp
    "0000000000000fff"  # producer id
    "0003"  # producer epoch
    "00000010"  # base sequence
    "00000003"  # record count
    "1c000000066b65790a76616c756500"
    "44000e02010c6e6f206b6579060a74726163650400010a656d70747900086e6f6e6501"
    "0c000604000100"
)
# fmt: on
READERS = {"aiokafka": AioBatch, "kafka-python": KafkaBatch}
BUILDERS = {"aiokafka": AioBuilder, "kafka-python": KafkaBuilder}
RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=60),
        st.integers(0, 1 << 42),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def rows_of(records: list[Record]) -> list[NewRecord]:
    """Records as they were before they had offsets."""
    return [NewRecord(key, value, ms or 0, tuple(headers)) for _, ms, key, value, headers in records]


def test_bytes_are_kafkas() -> None:
    """The bytes equal Kafka's, in a whole batch written out field by field."""
    assert encode_batch(GOLDEN, producer_id=0xFFF, producer_epoch=3, base_sequence=16) == GOLDEN_BYTES


@pytest.mark.parametrize("library", BUILDERS)
def test_uncompressed_bytes_equal_the_library_s(library: str) -> None:
    """Without compression a batch has a single encoding, and all three codecs produce it."""
    builder = BUILDERS[library](2, 0, 0, 0xFFF, 3, 16, 1 << 20)
    for offset, (key, value, timestamp_ms, headers) in enumerate(GOLDEN):
        builder.append(offset, timestamp_ms, key, value, list(headers))

    batch = bytearray(builder.build())
    # kafka-python leaves 0 where the leader will write its epoch, the others -1.
    stamp(batch, 0, -1)

    assert bytes(batch) == GOLDEN_BYTES


def built_by_aiokafka(records: list[NewRecord]) -> bytes:
    builder = AioBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
    for offset, (key, value, timestamp_ms, headers) in enumerate(records):
        builder.append(offset, timestamp_ms, key, value, list(headers))
    return bytes(builder.build())


@given(records=RECORDS)
def test_any_records_are_built_as_the_library_builds_them(records: list[NewRecord]) -> None:
    """Whatever is absent, and however far a time lies before or behind the first, the bytes are aiokafka's."""
    assert encode_batch(records) == built_by_aiokafka(records)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 8_191, 8_192, 70_000])
def test_long_records_are_built_as_the_library_builds_them(length: int) -> None:
    """Around each length whose varint grows by a byte, of keys, values and headers, the bytes are aiokafka's."""
    text = b"x" * length
    records = [NewRecord(text, text, 1, ((text.decode(), text),)), NewRecord(None, text, 1), NewRecord(text, None, 1)]

    assert encode_batch(records) == built_by_aiokafka(records)


def test_many_records_are_built_as_the_library_builds_them() -> None:
    """So many that the varints of their offsets have up to three bytes have aiokafka's bytes."""
    records = [NewRecord(None, None, 5)] * 8_200

    assert encode_batch(records) == built_by_aiokafka(records)


def test_a_batch_may_be_built_of_anything_that_holds_bytes() -> None:
    """Keys, values and contents of headers may be any buffer, whose bytes are those at the time of the call."""
    plain, other = BatchBuilder(), BatchBuilder()
    plain.try_append(b"key", b"value", 1, [("h", b"content")])
    value = bytearray(b"value")
    other.try_append(memoryview(b"key"), value, 1, [("h", bytearray(b"content"))])  # type: ignore[arg-type,list-item]
    value[:] = b"later"

    assert other.build() == plain.build()


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [("k", b"", ()), (5, b"", ()), (None, "v", ()), (b"", 5, ()), (b"", b"", [(b"n", b"")])],
)
def test_what_is_not_bytes_is_refused_and_leaves_nothing_behind(key: Any, value: Any, headers: Any) -> None:
    """Text or a number where bytes are due is a TypeError, and the batch is as it was."""
    builder = BatchBuilder()
    builder.try_append(None, b"first", 1)
    before = builder.build()
    with pytest.raises(TypeError):
        builder.try_append(key, value, 1 << 40, headers)

    assert builder.build() == before


@pytest.mark.parametrize("timestamp_ms", [-1, 1 << 63])
def test_a_time_that_no_batch_can_hold_is_refused(timestamp_ms: int) -> None:
    """It is refused with the record, so that no other record of the batch is lost."""
    with pytest.raises(Refused, match="INVALID_TIMESTAMP"):
        BatchBuilder().try_append(None, b"v", timestamp_ms)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("library", READERS)
def test_libraries_read_ours(library: str, codec: Compression) -> None:
    """A batch of this codec, stamped by a leader, is read by both libraries with its CRC."""
    records = GOLDEN * 50
    batch = bytearray(encode_batch(records, compression=codec))
    stamp(batch, 400, 2)
    theirs = READERS[library](bytes(batch))

    assert theirs.validate_crc()
    assert theirs.compression_type == codec
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs]
    assert read == [(400 + at, r.timestamp_ms, r.key, r.value, list(r.headers)) for at, r in enumerate(records)]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("library", BUILDERS)
def test_we_read_the_libraries(library: str, codec: Compression) -> None:
    """A batch of either library passes the produce check and decodes to its records."""
    records = GOLDEN * 50
    builder = BUILDERS[library](2, int(codec), 0, -1, -1, -1, 1 << 20)
    for offset, (key, value, timestamp_ms, headers) in enumerate(records):
        builder.append(offset, timestamp_ms, key, value, list(headers))
    batch = bytes(builder.build())

    assert check_batch(memoryview(batch)).record_count == len(records)
    assert rows_of(decode_batch(batch)) == records


@given(records=RECORDS, codec=st.sampled_from(Compression))
def test_round_trip(records: list[NewRecord], codec: Compression) -> None:
    """Decoding returns keys, values, headers and timestamps, at dense offsets."""
    decoded = decode_batch(encode_batch(records, compression=codec))

    assert rows_of(decoded) == records
    assert [record.offset for record in decoded] == list(range(len(records)))


def test_a_fetch_answer_is_split_into_batches_that_decode() -> None:
    """Several batches in one answer give their records in order."""
    payload = bytearray()
    for base in (10, 13):
        batch = bytearray(encode_batch(GOLDEN))
        stamp(batch, base, 1)
        payload += batch

    records = [record for _, view in split_batches(payload) for record in decode_batch(view)]

    assert [record.offset for record in records] == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_that_was_checked_before_gives_the_same_records(codec: Compression) -> None:
    """Without a check of the CRC the records are those of a decoding with it, for each codec."""
    batch = encode_batch(GOLDEN * 50, compression=codec)
    assert decode_trusted_batch(parse_header(batch), batch) == decode_batch(batch)


def test_builder_stops_when_the_batch_is_full() -> None:
    """A record that does not fit starts the next batch; one that fits into no batch is rejected."""
    builder = BatchBuilder(max_bytes=300)
    taken = 0
    while builder.try_append(None, b"v" * 50, 1):
        taken += 1

    assert taken == builder.count == 4
    assert builder.size_bytes == len(builder.build())
    assert len(builder.build()) <= 300
    with pytest.raises(Refused) as refused:
        BatchBuilder(max_bytes=300).try_append(None, b"v" * 300, 1)
    assert refused.value.refusal.code is ErrorCode.MESSAGE_TOO_LARGE


def test_batch_needs_records() -> None:
    """An empty batch is rejected when built, not when it arrives."""
    with pytest.raises(Refused) as refused:
        encode_batch([])

    assert refused.value.refusal.code is ErrorCode.INVALID_RECORD
