"""The size to which a compressed body may expand, as it says and as it does."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given, strategies as st

from strandline.core.errors import ErrorCode, Refused
from strandline.records.compression import (
    MAX_EXPANDED_BYTES,
    MOST_BLOCKS,
    UNKNOWN,
    Compression,
    Expansion,
    compress,
    expand,
    expanded_bytes,
    expansion_of,
)

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
GIB = 1 << 30


def _zstd_without_size(data: bytes) -> bytes:
    """The output of streaming writers, the Java library among them: no content size in the header."""
    stream = zstandard.ZstdCompressor(level=1, write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


def _zstd_in_small_blocks(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    blocks = [
        stream.compress(data[at : at + 1_000]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for at in range(0, len(data), 1_000)
    ]
    return b"".join(blocks) + stream.flush()


def _two_frames(write: Callable[[bytes], bytes], magic: int) -> Callable[[bytes], bytes]:
    """Two frames, with one of user data between them, which expands to nothing."""

    def both(data: bytes) -> bytes:
        return write(data[:100]) + struct.pack("<II", magic, 3) + b"xyz" + write(data[100:])

    return both


def _lz4_linked(data: bytes) -> bytes:
    return lz4.frame.compress(data, block_linked=True, content_checksum=True, block_checksum=True, store_size=False)


def _two_members(data: bytes) -> bytes:
    return gzip.compress(data[:50]) + gzip.compress(data[50:])


WRITERS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip": (Compression.GZIP, lambda data: compress(Compression.GZIP, data)),
    "gzip of two members": (Compression.GZIP, _two_members),
    "snappy": (Compression.SNAPPY, lambda data: compress(Compression.SNAPPY, data)),
    "lz4": (Compression.LZ4, lambda data: compress(Compression.LZ4, data)),
    "lz4 with its size": (Compression.LZ4, lambda data: lz4.frame.compress(data, store_size=True)),
    "lz4 of linked blocks": (Compression.LZ4, _lz4_linked),
    "lz4 of two frames": (Compression.LZ4, _two_frames(_lz4_linked, 0x184D2A51)),
    "zstd": (Compression.ZSTD, lambda data: compress(Compression.ZSTD, data)),
    "zstd without its size": (Compression.ZSTD, _zstd_without_size),
    "zstd in small blocks": (Compression.ZSTD, _zstd_in_small_blocks),
    "zstd of two frames": (Compression.ZSTD, _two_frames(_zstd_without_size, 0x184D2A5F)),
}


EXACT = ("snappy", "lz4 with its size", "zstd")


@pytest.mark.parametrize("name", WRITERS)
@given(
    data=st.binary(max_size=300)
    | st.builds(lambda part, count: part * count, st.binary(max_size=40), st.integers(0, 9_000))
)
def test_what_is_declared_encloses_what_is_expanded(name: str, data: bytes) -> None:
    """Whichever library wrote it, a body expands to no less than ``least`` and no more than ``most``."""
    codec, write = WRITERS[name]
    body = write(data)
    said = expansion_of(codec, memoryview(body))
    size_bytes = len(expand(codec, body))

    assert size_bytes == len(data) == expanded_bytes(codec, body, MAX_EXPANDED_BYTES)
    assert said.most is not None
    assert said.least <= size_bytes <= said.most
    if name in EXACT:
        assert said == Expansion(size_bytes, size_bytes)


@pytest.mark.parametrize("codec", CODECS)
@given(body=st.binary(max_size=120))
def test_any_bytes_say_something_or_nothing(codec: Compression, body: bytes) -> None:
    """Arbitrary bytes never raise, and if they expand, their size is within the bounds."""
    said = expansion_of(codec, memoryview(body))
    try:
        size_bytes = len(expand(codec, body, 1 << 20))
    except Refused:
        return

    assert said.least <= size_bytes <= (said.most if said.most is not None else size_bytes)


def _zstd_of_runs(blocks: int, declared: int | None) -> bytes:
    """Blocks of one repeated byte, 128 KiB each, under a header that declares a size or does not."""
    window, run = b"\x58", (128 << 10) << 3 | 1 << 1
    header = b"\x00" + window if declared is None else b"\xc0" + window + declared.to_bytes(8, "little")
    body = (run.to_bytes(3, "little") + b"\x00") * (blocks - 1)
    return struct.pack("<I", 0xFD2FB528) + header + body + (run | 1).to_bytes(3, "little") + b"\x00"


def test_a_declared_size_is_known_before_anything_is_expanded() -> None:
    """A body of 320 kB that declares 10 GiB is reported as such, though it has too many blocks to be counted."""
    body = _zstd_of_runs(10 * GIB >> 17, 10 * GIB)

    assert len(body) < 330_000
    assert expansion_of(Compression.ZSTD, memoryview(body)) == Expansion(10 * GIB, None)


def test_blocks_beyond_number_say_nothing() -> None:
    """Counting stops after a fixed number of blocks, however many follow; expanding then stops at its limit."""
    few = expansion_of(Compression.ZSTD, memoryview(_zstd_of_runs(MOST_BLOCKS, None)))
    many = expansion_of(Compression.ZSTD, memoryview(_zstd_of_runs(MOST_BLOCKS + 1, None)))
    with pytest.raises(Refused) as refused:
        expanded_bytes(Compression.ZSTD, _zstd_of_runs(MOST_BLOCKS + 1, None), MAX_EXPANDED_BYTES)
    snappy = compress(Compression.SNAPPY, b"x")[:16] + b"\0\0\0\3\1\0x" * (MOST_BLOCKS + 1)

    assert few == Expansion(0, MOST_BLOCKS * (128 << 10))
    assert many == UNKNOWN
    assert refused.value.refusal.code is ErrorCode.MESSAGE_TOO_LARGE
    assert expansion_of(Compression.SNAPPY, memoryview(snappy)) == UNKNOWN
    assert expanded_bytes(Compression.SNAPPY, snappy, MAX_EXPANDED_BYTES) == MOST_BLOCKS + 1


def _lying(name: str) -> bytes:
    """A body of 100,000 bytes whose frame declares another size."""
    codec, write = WRITERS[name]
    body = bytearray(write(b"0123456789" * 10_000))
    if codec is Compression.ZSTD:
        # Magic, descriptor with a size of four bytes, then the size.
        assert body[4] >> 6 == 2
        body[5:9] = (70_000).to_bytes(4, "little")
    elif codec is Compression.LZ4:
        # The header's own checksum follows the size; the frame's header is written again to correct it.
        other = lz4.frame.compress(bytes(70_000), store_size=True)
        body[:15] = other[:15]
    else:
        body[20] ^= 1
    return bytes(body)


@pytest.mark.parametrize("name", EXACT)
def test_a_frame_that_lies_about_its_size_is_refused_by_the_decoder(name: str) -> None:
    """The decoder rejects a frame with a wrong size, so that of every expandable body the declared size is right."""
    codec, _ = WRITERS[name]
    with pytest.raises(Refused) as refused:
        expand(codec, _lying(name))

    assert refused.value.refusal.code is ErrorCode.CORRUPT_MESSAGE


# The limit of decompression, and the result for bytes that are not compressed records.


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size_bytes", [0, 1, 100, 70_000, 300_000])
def test_expanding_undoes_compressing(codec: Compression, size_bytes: int) -> None:
    """Every codec returns its input, at sizes around its block boundaries."""
    body = (b"a line of text, " * (size_bytes // 16 + 1))[:size_bytes]

    assert expand(codec, compress(codec, body)) == body


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_is_refused_at_the_limit(codec: Compression) -> None:
    """Bytes that expand beyond the limit are rejected without expanding them all."""
    bomb = compress(codec, bytes(4 << 20))
    with pytest.raises(Refused) as refused:
        expand(codec, bomb, 1 << 20)

    assert refused.value.refusal.code is ErrorCode.MESSAGE_TOO_LARGE
    assert len(expand(codec, bomb, 4 << 20)) == 4 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_cut_records_are_refused(codec: Compression) -> None:
    """A truncated compressed body is corrupt, not shorter."""
    body = compress(codec, b"a line of text, " * 100)
    with pytest.raises(Refused) as refused:
        expand(codec, body[: len(body) // 2])

    assert refused.value.refusal.code is ErrorCode.CORRUPT_MESSAGE


def test_unknown_codec_is_refused() -> None:
    """Numbers 5 to 7, which name no codec, are rejected."""
    with pytest.raises(Refused) as refused:
        expand(6, b"x")

    assert refused.value.refusal.code is ErrorCode.INVALID_RECORD
