"""How the records of a batch are compressed, at which level, and how far they may expand.

Invariant: expanding never allocates more than the limit it was given, whatever the bytes claim.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

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


# ---- expansion
# How far a compressed body expands, read from it without expanding it.
#
# Invariant: what a body of its codec really expands to is never less than ``least`` nor more than ``most``. A frame
# that lies about its size is refused by every decoder, so a size that it declares may be believed.

GZIP_MOST_TIMES = 1_032
"""DEFLATE writes at most 258 bytes for every two bits that it reads."""
LZ4_MOST_TIMES = 255
"""One more byte of a match's length adds up to 255 bytes."""
MOST_BLOCKS = 2_048
"""More blocks than this are not counted here: 64 MiB are 1,024 blocks of lz4, or 512 of zstd."""

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 << 10
_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_WORD = struct.Struct("<I")
_WORD_BIG_ENDIAN = struct.Struct(">i")


class Expansion(NamedTuple):
    """Between which sizes a body expands."""

    least: int
    most: int | None
    """None: the body does not say; it has to be expanded to know."""


UNKNOWN = Expansion(0, None)


def expansion_of(codec: int, body: memoryview) -> Expansion:
    """What the frames of ``body`` declare; a body that its codec did not write says nothing."""
    try:
        if codec == Compression.GZIP:
            return Expansion(0, GZIP_MOST_TIMES * len(body))
        if codec == Compression.SNAPPY:
            return _snappy(body)
        if codec == Compression.LZ4:
            return _lz4(body)
        if codec == Compression.ZSTD:
            return _zstd(body)
    except (_NotSaid, struct.error, IndexError):
        return UNKNOWN
    return Expansion(len(body), len(body))


class _NotSaid(Exception):
    """The body is not what its codec writes, or holds too many blocks to be counted here."""


class _Sum:
    """Sizes of blocks and frames, added up."""

    def __init__(self) -> None:
        self.least = self.most = 0
        self._blocks = 0

    def count_block(self) -> None:
        """One more block was read."""
        self._blocks += 1
        if self._blocks > MOST_BLOCKS:
            raise _NotSaid


def _snappy(body: memoryview) -> Expansion:
    if body[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        size = _varint(body, 0)
        return Expansion(size, size)
    total, position = _Sum(), len(XERIAL_HEADER)
    while position < len(body):
        total.count_block()
        (length,) = _WORD_BIG_ENDIAN.unpack_from(body, position)
        position += _WORD_BIG_ENDIAN.size
        if length <= 0:
            raise _NotSaid
        total.least += _varint(body, position)
        position += length
    return Expansion(total.least, total.least)


def _varint(body: memoryview, position: int) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = body[position + shift // 7]
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value
    raise _NotSaid


def _lz4(body: memoryview) -> Expansion:
    total, position = _Sum(), 0
    try:
        while position < len(body):
            position = _skipped(body, position) or _lz4_frame(body, position, total)
    except _NotSaid:
        # Blocks beyond number, but each byte of them expands to so many at most.
        return Expansion(total.least, LZ4_MOST_TIMES * len(body))
    return Expansion(total.least, min(total.most, LZ4_MOST_TIMES * len(body)))


def _lz4_frame(body: memoryview, position: int, total: _Sum) -> int:
    if _WORD.unpack_from(body, position)[0] != _LZ4_MAGIC:
        raise _NotSaid
    flags, block_bytes = body[position + 4], _LZ4_BLOCK_BYTES.get(body[position + 5] >> 4 & 7)
    if flags >> 6 != 1 or block_bytes is None:
        raise _NotSaid
    position += 6
    declared: int | None = None
    if flags & 0x08:
        declared = int.from_bytes(body[position : position + 8], "little")
        position += 8
    position += (4 if flags & 0x01 else 0) + 1
    total.least += declared or 0
    checksum_bytes, blocks = 4 if flags & 0x10 else 0, 0
    while True:
        (size,) = _WORD.unpack_from(body, position)
        position += _WORD.size
        if size == 0:
            break
        total.count_block()
        blocks += 1
        position += (size & 0x7FFFFFFF) + checksum_bytes
    total.most += blocks * block_bytes if declared is None else declared
    return position + (4 if flags & 0x04 else 0)


def _zstd(body: memoryview) -> Expansion:
    total, position = _Sum(), 0
    try:
        while position < len(body):
            position = _skipped(body, position) or _zstd_frame(body, position, total)
    except _NotSaid:
        return Expansion(total.least, None)
    return Expansion(total.least, total.most)


def _zstd_frame(body: memoryview, position: int, total: _Sum) -> int:
    if _WORD.unpack_from(body, position)[0] != _ZSTD_MAGIC:
        raise _NotSaid
    descriptor = body[position + 4]
    single_segment = bool(descriptor & 0x20)
    position += 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    declared: int | None = None
    if size_bytes:
        declared = int.from_bytes(body[position : position + size_bytes], "little")
        declared += 256 if size_bytes == 2 else 0
        total.least += declared
    position += size_bytes
    most, is_last = 0, False
    while not is_last:
        total.count_block()
        header = int.from_bytes(body[position : position + 3], "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == 1 else size)
        if kind == 3 or position > len(body):
            raise _NotSaid
        most += _ZSTD_BLOCK_BYTES if kind == 2 else size
    total.most += most if declared is None else declared
    return position + (4 if descriptor & 0x04 else 0)


def _skipped(body: memoryview, position: int) -> int | None:
    """Where a frame of user data ends, which expands to nothing; None if there is none."""
    magic, size = struct.unpack_from("<II", body, position) if len(body) - position >= 8 else (0, 0)
    return position + 8 + size if magic & _SKIPPABLE_MASK == _SKIPPABLE else None
