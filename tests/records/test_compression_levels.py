"""The limit of decompression, and the result for bytes that are not compressed records."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.errors import ErrorCode, Refused
from strandline.records.compression import Compression, compress, expand

CODECS = [codec for codec in Compression if codec is not Compression.NONE]


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
@given(body=st.binary(max_size=120))
def test_any_bytes_expand_or_are_refused(codec: Compression, body: bytes) -> None:
    """Arbitrary bytes are compressed records or a rejection, never another exception."""
    code = None
    try:
        expand(codec, body, 1 << 16)
    except Refused as refused:
        code = refused.refusal.code

    assert code in (None, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


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


def test_gzip_of_another_library_is_read() -> None:
    """Kafka's Java clients write gzip with their own header fields."""
    assert expand(Compression.GZIP, gzip.compress(b"from elsewhere")) == b"from elsewhere"
