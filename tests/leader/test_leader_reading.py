"""What a leader looks at in the bytes it takes and gives, and nothing more."""

from __future__ import annotations

from strandline.leader.sent import end_of_batches
from strandline.records.batch import stamp
from strandline.records.codec import NewRecord, encode_batch


def _batch(count: int, base_offset: int = 0) -> bytes:
    plain = bytearray(encode_batch([NewRecord(None, b"v%d" % index, 5) for index in range(count)]))
    stamp(plain, base_offset, 3)
    return bytes(plain)


def test_an_answers_end_is_that_of_its_last_batch() -> None:
    """Read from the bytes themselves, whatever their number."""
    assert end_of_batches(_batch(3, 10)) == 13
    assert end_of_batches(_batch(3, 10) + _batch(1, 13) + _batch(5, 14)) == 19
