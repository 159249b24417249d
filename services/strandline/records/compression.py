"""How the records of a batch are compressed, at which level, and how far they may expand.

Invariant: expanding never allocates more than the limit it was given, whatever the bytes claim.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

import cramjam

from strandline.core.errors import ErrorCode, Refused

MAX_EXPANDED_BYTES = 64 << 20
"""What one batch may expand to; 60 times the largest batch. A topic's ``max.decompressed.bytes`` can only be less."""

_GZIP_LEVEL = 1
_LZ4_LEVEL = 0
_ZSTD_LEVEL = 1
_FIRST_GUESS_BYTES = 64 << 10
_GROWTH = 4
_NO_ROOM = "failed to write whole buffer"

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""In front of snappy's blocks as the Java library writes them."""
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_LENGTH = struct.Struct(">i")


class Compression(IntEnum):
    """Kafka's codec numbers, bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, body: bytes | bytearray | memoryview) -> bytes:
    """Compress the records of a batch in the framing Kafka's clients read.

    The levels are the fast ones: zstd 1, lz4 0, gzip 1 (aiokafka's lz4 default of 9 is 20 times slower).
    """
    if codec is Compression.GZIP:
        return bytes(cramjam.gzip.compress(body, level=_GZIP_LEVEL))
    if codec is Compression.SNAPPY:
        return _compress_snappy(memoryview(body))
    if codec is Compression.LZ4:
        # Kafka's reader knows no linked blocks (KIP-57).
        frame = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
        frame.compress(bytes(body))
        return bytes(frame.finish())
    if codec is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(body, level=_ZSTD_LEVEL))
    return bytes(body)


def expand(codec: int, body: bytes | memoryview, limit_bytes: int = MAX_EXPANDED_BYTES) -> bytes:
    """Undo `compress`, allocating ``limit_bytes`` at most.

    Raises:
        Refused: CORRUPT_MESSAGE, not what the codec writes; INVALID_RECORD, an unknown codec;
            MESSAGE_TOO_LARGE, it expands beyond the limit.
    """
    known = _known(codec)
    with _as_refusals(known):
        if known is Compression.NONE:
            return bytes(body)
        if known is Compression.SNAPPY:
            return b"".join(_snappy_blocks(bytes(body), limit_bytes))
        buffer, size_bytes = _fill(_INTO[known], bytes(body), limit_bytes)
        return bytes(memoryview(buffer)[:size_bytes])


def expanded_bytes(codec: int, body: bytes | memoryview, limit_bytes: int) -> int:
    """The size of what `expand` would return; it keeps nothing of it.

    Raises:
        Refused: as `expand`.
    """
    known = _known(codec)
    with _as_refusals(known):
        if known is Compression.NONE:
            return len(body)
        if known is Compression.SNAPPY:
            return sum(len(block) for block in _snappy_blocks(bytes(body), limit_bytes))
        return _fill(_INTO[known], bytes(body), limit_bytes)[1]


def _known(codec: int) -> Compression:
    try:
        return Compression(codec)
    except ValueError:
        raise Refused(ErrorCode.INVALID_RECORD, f"compression codec {codec} is unknown; use 0 to 4") from None


@contextmanager
def _as_refusals(codec: Compression) -> Iterator[None]:
    try:
        yield
    except (cramjam.DecompressionError, struct.error, ValueError) as error:
        reason = f"records are not {codec.name.lower()} data: {error}; encode the batch again"
        raise Refused(ErrorCode.CORRUPT_MESSAGE, reason) from error


_Into = Callable[[bytes, bytearray], int]

_INTO: dict[Compression, _Into] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


def _fill(into: _Into, body: bytes, limit_bytes: int) -> tuple[bytearray, int]:
    """Expand into buffers of growing size: the size is not known before, and must not be believed."""
    room = min(max(_FIRST_GUESS_BYTES, _GROWTH * len(body)), limit_bytes)
    while True:
        buffer = bytearray(room)
        try:
            return buffer, into(body, buffer)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise
            if room >= limit_bytes:
                raise _too_large(limit_bytes) from error
        room = min(room * _GROWTH, limit_bytes)


def _compress_snappy(body: memoryview) -> bytes:
    parts = [XERIAL_HEADER]
    for start in range(0, len(body), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(body[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_blocks(body: bytes, limit_bytes: int) -> Iterator[bytes]:
    """Snappy in the blocks of the Java library, or one raw block as other clients write it."""
    if body[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _expand_snappy_block(body, limit_bytes)
        return
    position, expanded = len(XERIAL_HEADER), 0
    while position < len(body):
        (length,) = _BLOCK_LENGTH.unpack_from(body, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(body) - position:
            raise ValueError(f"a block of {length} bytes where {len(body) - position} are left")
        block = _expand_snappy_block(body[position : position + length], limit_bytes - expanded)
        position, expanded = position + length, expanded + len(block)
        yield block


def _expand_snappy_block(block: bytes, limit_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
        raise _too_large(limit_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _too_large(limit_bytes: int) -> Refused:
    return Refused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"records expand to more than {limit_bytes} bytes; send smaller batches",
    )
