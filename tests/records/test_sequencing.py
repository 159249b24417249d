"""A batch under another producer's identity."""

from __future__ import annotations

import pytest

from strandline.records.batch import check_batch, with_producer
from strandline.records.codec import NewRecord, encode_batch
from strandline.records.compression import Compression

RECORDS = [NewRecord(b"k", b"v" * 100, 5), NewRecord(None, b"w" * 100, 6, [("h", b"1")])]


@pytest.mark.parametrize("compression", list(Compression))
def test_identity_set_later_is_identity_built_in(compression: Compression) -> None:
    """The bytes equal those of a batch that was encoded with the identity, CRC included."""
    plain = encode_batch(RECORDS, compression=compression)
    later = with_producer(plain, producer_id=7, producer_epoch=2, base_sequence=40)
    built_in = encode_batch(RECORDS, compression=compression, producer_id=7, producer_epoch=2, base_sequence=40)

    assert later == built_in
    assert check_batch(memoryview(later)).producer == (7, 2, 40)
    assert with_producer(later, producer_id=-1, producer_epoch=-1, base_sequence=-1) == plain
