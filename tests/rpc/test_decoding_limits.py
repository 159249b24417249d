"""The cost limits of decoding an answer, and the caller's answer for a batch that cannot be decoded."""

from __future__ import annotations

import struct

import crc32c

from strandline.core.errors import ErrorCode
from strandline.core.types import Offset, TopicPartition
from strandline.records.batch import UNPACKED_RECORDS, stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.records.compression import Compression
from strandline.rpc.convert.records import MOST_BYTES, Decoded, FetchedBatches, decode_records

TP0, TP1 = TopicPartition("id", 0), TopicPartition("id", 1)


def _batch(base_offset: int, *values: bytes, compression: Compression = Compression.NONE) -> bytes:
    plain = bytearray(encode_batch([NewRecord(None, value, 5) for value in values], compression=compression))
    stamp(plain, base_offset, 3)
    return bytes(plain)


def _claiming(base_offset: int, records: int) -> bytes:
    """A batch that declares this many records, in a body that is no zstd data."""
    batch = bytearray(_batch(base_offset, b"x" * 20))
    struct.pack_into(">hi", batch, 21, Compression.ZSTD, records - 1)
    struct.pack_into(">i", batch, 57, records)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def _decoded(payload: bytes, start: int = 0) -> Decoded:
    return decode_records([FetchedBatches(TP0, payload)], {TP0: Offset(start)})[TP0]


def _offsets(decoded: Decoded) -> list[int]:
    return [record.offset for record in decoded.records]


def test_a_batch_of_too_many_records_is_refused_by_its_header() -> None:
    """A batch of too many records is rejected by its header, and its body is never decoded: here it holds none."""
    found = _decoded(_claiming(7, UNPACKED_RECORDS + 1), 7)

    assert found.refusal is not None and not found.records
    assert found.refusal.code is ErrorCode.MESSAGE_TOO_LARGE
    for words in ("offset 7 ", str(UNPACKED_RECORDS), "without decode", f"from offset {UNPACKED_RECORDS + 8} on"):
        assert words in found.refusal.message


def test_what_is_readable_in_front_of_a_bad_batch_is_answered() -> None:
    """The batches before it come without an error; the next fetch begins at the bad batch and gets the error."""
    payload = _batch(0, b"a", b"b") + _claiming(2, 3) + _batch(5, b"c")
    first, second = _decoded(payload), _decoded(payload[len(_batch(0, b"a", b"b")) :], 2)

    assert (_offsets(first), first.refusal) == ([0, 1], None)
    assert second.refusal is not None
    assert second.refusal.code is ErrorCode.CORRUPT_MESSAGE
    assert "offset 2 " in second.refusal.message and "from offset 5 on" in second.refusal.message


def test_records_that_are_too_large_as_messages_are_refused() -> None:
    """A batch that expands beyond what one answer holds is expanded no further."""
    found = _decoded(_batch(0, *[bytes(500_000)] * 2, compression=Compression.ZSTD))
    large = encode_batch([NewRecord(None, bytes(MOST_BYTES), 5)], compression=Compression.ZSTD, max_bytes=8 << 20)
    refused = _decoded(large)

    assert _offsets(found) == [0, 1]
    assert refused.refusal is not None
    assert refused.refusal.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_answer_may_be_filled_to_its_last_byte() -> None:
    """Records that take exactly what one answer holds are given; one byte more is too large."""
    room_bytes = MOST_BYTES - 32

    def refusal_of(size_bytes: int) -> ErrorCode | None:
        record = NewRecord(None, bytes(size_bytes), 5)
        batch = bytearray(encode_batch([record], compression=Compression.ZSTD, max_bytes=8 << 20))
        stamp(batch, 0, 3)
        refusal = _decoded(bytes(batch)).refusal
        return refusal.code if refusal else None

    assert refusal_of(room_bytes) is None
    assert refusal_of(room_bytes + 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_partitions_share_the_room_of_one_answer() -> None:
    """Batches without room are left for the next fetch, without an error."""
    record = NewRecord(None, bytes(3 << 20), 5)
    large = bytearray(encode_batch([record], compression=Compression.ZSTD, max_bytes=8 << 20))
    stamp(large, 0, 3)
    found = decode_records(
        [FetchedBatches(TP0, bytes(large)), FetchedBatches(TP1, bytes(large))], {TP0: Offset(0), TP1: Offset(0)}
    )

    assert _offsets(found[TP0]) == [0]
    assert found[TP1] == Decoded([], next_offset=Offset(0))


def test_an_answer_gives_up_after_several_bad_batches() -> None:
    """Many partitions with a bad batch each cost no more than a few."""
    tps = [TopicPartition("id", index) for index in range(12)]
    found = decode_records([FetchedBatches(tp, _claiming(0, 3)) for tp in tps], dict.fromkeys(tps, Offset(0)))

    assert [found[tp].refusal is not None for tp in tps] == [True] * 8 + [False] * 4
