"""How far a compressed body expands, read from it without expanding it.

Invariant: what a body of its codec really expands to is never less than ``least`` nor more than ``most``. A frame that
lies about its size is refused by every decoder, so a size that it declares may be believed.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from strandline.records.compression import XERIAL_HEADER, XERIAL_MAGIC, Compression

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
