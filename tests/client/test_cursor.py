"""What a cursor keeps of an answer, and what it gives of it, without sockets."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import pytest

from strandline.client.consume.cursor import Cursor, FetchAnswer
from strandline.client.errors import UnreadableBatch
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset, TopicPartition
from strandline.records.batch import stamp
from strandline.records.codec import NewRecord, encode_batch


def _batch(base_offset: int, *values: bytes, attributes: int = 0) -> bytes:
    """As a log holds it; with the bits of a codec in ``attributes`` over plain bytes it cannot be unpacked."""
    batch = bytearray(encode_batch([NewRecord(None, value, 5) for value in values]))
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    stamp(batch, base_offset, 3)
    return bytes(batch)


def _cursor(offset: int = 0) -> Cursor:
    cursor = Cursor("t", TopicPartition("id", 0))
    cursor.seek(offset=Offset(offset))
    return cursor


def _take(cursor: Cursor, payload: bytes) -> None:
    unknown: Any = None
    cursor.take(FetchAnswer(unknown, Offset(100), Offset(0), unknown, payload))


def _offsets(cursor: Cursor) -> list[int]:
    return [record.offset for record in cursor.pop_records().records]


@pytest.mark.parametrize(
    "payload",
    [
        _batch(0, b"a") + _batch(2, b"c"),
        _batch(0, b"a", b"b") + _batch(1, b"b"),
        _batch(1, b"b"),
        _batch(0, b"a") + _batch(1, b"b")[:-1] + b"?",
    ],
    ids=["a gap", "an overlap", "a later offset", "damaged bytes"],
)
def test_an_answer_that_is_not_dense_is_not_kept(payload: bytes) -> None:
    """P4: whole or not at all, so that the very offset is asked for again."""
    cursor = _cursor()
    with pytest.raises(Refused) as refused:
        _take(cursor, payload)

    assert refused.value.refusal.code is ErrorCode.CORRUPT_MESSAGE
    assert (cursor.fetch_offset, cursor.has_records, cursor.buffered_bytes) == (0, False, 0)


def test_what_lies_before_the_offset_in_its_batch_is_not_given() -> None:
    """A fetch from inside a batch brings the batch whole; the next one goes on behind it."""
    cursor = _cursor(1)
    _take(cursor, _batch(0, b"a", b"b", b"c"))

    assert cursor.fetch_offset == 3
    assert _offsets(cursor) == [1, 2]


def test_nothing_of_before_a_seek_is_given_after_it() -> None:
    """Neither what was fetched nor what was unpacked, and an answer under way is known to be of before."""
    cursor = _cursor()
    _take(cursor, _batch(0, b"a", b"b"))
    cursor.unpack(cursor.pop_records())
    _take(cursor, _batch(2, b"c"))
    generation = cursor.generation
    cursor.seek(offset=Offset(7))

    assert (cursor.has_records, cursor.buffered_bytes) == (False, 0)
    assert (cursor.position, cursor.fetch_offset) == (7, 7)
    assert cursor.generation != generation


def test_nothing_behind_a_batch_that_cannot_be_unpacked_is_given() -> None:
    """The records before it are; then its error is raised, until the user goes elsewhere."""
    cursor = _cursor()
    _take(cursor, _batch(0, b"a") + _batch(1, b"no zstd", attributes=4) + _batch(2, b"c"))
    _take(cursor, _batch(3, b"d"))
    given = _offsets(cursor)

    assert given == [0]
    assert isinstance(cursor.failure, UnreadableBatch)
    assert (cursor.has_records, cursor.buffered_bytes, cursor.fetch_offset) == (False, 0, 1)
    assert not cursor.may_fetch(0, 1 << 20)
