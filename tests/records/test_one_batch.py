"""A partition of a produce holds exactly one batch."""

from __future__ import annotations

import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline.records.batch import check_one_batch, stamp
from strandline.records.codec import NewRecord, encode_batch


def _batch(count: int, base_offset: int = 0) -> bytes:
    plain = bytearray(encode_batch([NewRecord(None, b"v%d" % index, 5) for index in range(count)]))
    stamp(plain, base_offset, 3)
    return bytes(plain)


def test_exactly_one_batch_is_taken() -> None:
    """The header of the one batch is returned in the core's form."""
    header = check_one_batch(_batch(4))

    assert (header.record_count, header.size_bytes) == (4, len(_batch(4)))


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (_batch(1) * 2, ErrorCode.INVALID_RECORD),
        (b"x" * 80, ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["none", "two", "noise"],
)
def test_anything_else_is_refused(payload: bytes, code: ErrorCode) -> None:
    """No batch, two batches, or a wrong length prefix are rejected."""
    with pytest.raises(Refused) as caught:
        check_one_batch(payload)

    assert caught.value.refusal.code is code
