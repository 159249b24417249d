"""Target 1: for any bytes, a batch decoder returns a value or rejects them, in bounded memory.

Invariant: no other exception; splitting a payload allocates at most twice the payload and a fixed amount for each batch
found in it; expanding and parsing records stays below the given limit, whatever the bytes declare.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import crc32c
from draws import Draws

from strandline.core.errors import ErrorCode, Refused
from strandline.records import batch as batches, codec
from strandline.records.batch import check_one_batch
from strandline.records.compression import Compression, expand

REFUSALS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
}
EXPANDED_BYTES = 1 << 20
SLACK_BYTES = 64 << 10
PER_BATCH_BYTES = 1 << 10
"""A header as numbers and a view of the batch, however small the batch itself is."""


def check(data: bytes) -> None:
    """The oracle."""
    payload = payload_from(Draws(data))
    check_decoders(payload)
    for number in range(6):
        _value(lambda number=number: expand(number, payload, EXPANDED_BYTES), _within_limit)


def check_decoders(payload: bytes) -> None:
    """Every reader of batches over one payload."""
    split = _bounded(lambda: batches.split_batches(payload), len(payload))
    if split is not None:
        assert b"".join(bytes(found.view) for found in split) == payload, "a piece is missing"
    produced = _bounded(lambda: _checked(payload), len(payload))
    assert produced is None or produced == split
    one = _value(lambda: check_one_batch(payload))
    assert (one is not None) == (produced is not None and len(produced) == 1)
    first = struct.unpack_from(">q", payload)[0] if len(payload) >= 8 else 0
    replicated = _bounded(lambda: batches.check_replicated(payload, first), len(payload))
    if replicated:
        offsets = [found.header.base_offset for found in replicated]
        assert offsets == [first, *(found.header.next_offset for found in replicated[:-1])], "a gap or an overlap"
    _value(lambda: _records(payload), _dense)


def _checked(payload: bytes) -> list[batches.Batch]:
    found = batches.split_batches(payload)
    for batch in found:
        batches.check_batch(batch.view)
    return found


def _records(payload: bytes) -> list[codec.Record]:
    views = [view for _, view in batches.split_batches(payload, 1 << 31)]
    return [record for view in views for record in codec.decode_batch(view, max_expanded_bytes=EXPANDED_BYTES)]


def _dense(records: list[codec.Record]) -> None:
    assert all(record.offset >= 0 for record in records)


def _within_limit(expanded: bytes) -> None:
    assert len(expanded) <= EXPANDED_BYTES


def _value(read: Callable[[], Any], look: Callable[[Any], None] = lambda _: None) -> Any:
    """The result of ``read``, None for a rejection of a documented kind."""
    try:
        value = read()
    except Refused as error:
        if error.refusal.code not in REFUSALS:
            raise
        return None
    look(value)
    return value


def _bounded(read: Callable[[], Any], size_bytes: int) -> Any:
    """Like `_value`, with the memory it took compared with the size of what was read."""
    tracemalloc.start()
    try:
        value = _value(read)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    found = size_bytes // batches.HEADER_BYTES
    assert peak <= 2 * size_bytes + found * PER_BATCH_BYTES + SLACK_BYTES, f"{peak} bytes for {size_bytes}"
    return value


def payload_from(draws: Draws) -> bytes:
    """Bytes unchanged, or sealed as a batch, or valid batches with a change."""
    kind = draws.choice(("as it is", "sealed", "sound", "changed", "changed and sealed"))
    if kind == "as it is":
        return draws.rest()
    if kind == "sealed":
        return sealed(draws, draws.rest())
    content = bytearray(b"".join(_sound(draws) for _ in range(draws.integer(1, 3))))
    if kind == "sound":
        return bytes(content)
    for _ in range(draws.integer(1, 4)):
        content[draws.integer(0, len(content) - 1)] = draws.integer(0, 255)
    if draws.one_in(4):
        del content[draws.integer(0, len(content)) :]
    return bytes(content) if kind == "changed" else _with_sound_crc(bytes(content))


def sealed(draws: Draws, body: bytes) -> bytes:
    """A batch whose length and CRC are right, around a header and records that may be invalid."""
    count = draws.choice((1, 2, 0, -1, 3, 1 << 20, (1 << 31) - 1)) if not draws.is_over else 1
    attributes = body[0] & 0x3F if body else 0
    head = struct.pack(
        ">qiibIhiqqqhii",
        int.from_bytes(body[1:9], "big", signed=True) if len(body) > 8 and body[1] & 1 else 0,
        batches.HEADER_BYTES - batches.LENGTH_PREFIX_BYTES + len(body[9:]),
        body[9] - 1 if len(body) > 9 else 0,
        batches.MAGIC,
        0,
        attributes,
        max(count - 1, -(1 << 31)),
        1_000,
        1_000,
        -1,
        -1,
        -1,
        count,
    )
    return _with_sound_crc(head + body[9:])


def _with_sound_crc(content: bytes) -> bytes:
    """The first batch with its CRC computed again, so that the change passes it."""
    if len(content) < batches.HEADER_BYTES:
        return content
    size = struct.unpack_from(">i", content, 8)[0] + batches.LENGTH_PREFIX_BYTES
    end = size if batches.HEADER_BYTES <= size <= len(content) else len(content)
    crc = crc32c.crc32c(content[21:end])
    return content[:17] + struct.pack(">I", crc) + content[21:]


def _sound(draws: Draws) -> bytes:
    """A batch as the project's codec writes it."""
    rows = [
        codec.NewRecord(
            None if draws.one_in(2) else draws.taken(draws.integer(0, 9)),
            None if draws.one_in(4) else draws.taken(draws.integer(0, 40)) * draws.integer(1, 20),
            draws.integer(0, 1 << 41),
            [("h", draws.taken(2))] if draws.one_in(4) else (),
        )
        for _ in range(draws.integer(1, 5))
    ]
    producer = draws.integer(0, 5) if draws.one_in(2) else None
    content = bytearray(
        codec.encode_batch(
            rows,
            compression=draws.choice(tuple(Compression)),
            producer_id=producer,
            producer_epoch=-1 if producer is None else 0,
            base_sequence=-1 if producer is None else draws.integer(0, 9),
        )
    )
    batches.stamp(content, draws.integer(0, 3), draws.integer(0, 2))
    return bytes(content)
