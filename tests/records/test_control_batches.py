"""The marker of a transaction as bytes: Kafka's control record, and nothing else."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Marker, ProducerStamp
from strandline.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    check_batch,
    check_replicated,
    parse_header,
    split_batches,
)
from strandline.records.codec import (
    MARKER_BYTES,
    NewRecord,
    decode_batch,
    decode_trusted_batch,
    encode_batch,
    encode_marker,
    marker_of,
    with_marker,
)


def sample(*, committed: bool = True, coordinator: int = 5) -> memoryview:
    """A marker of producer 7 in epoch 3."""
    marker = Marker(committed, coordinator)
    return encode_marker(marker, producer_id=7, producer_epoch=3, timestamp_ms=1_700_000_000_000).view


def test_a_marker_is_laid_out_as_kafkas() -> None:
    """KIP-98: byte for byte, but for the CRC, which is checked by reading it back."""
    content = sample().hex()

    assert content[: 17 * 2] == "000000000000000000000042ffffffff02"
    assert content[21 * 2 :] == (
        "0030" "00000000" "0000018bcfe56800" "0000018bcfe56800" "0000000000000007" "0003" "ffffffff" "00000001"
        "20" "00" "00" "00" "08" "0000" "0001" "0c" "0000" "00000005" "00"
    )  # fmt: skip
    assert len(sample()) == MARKER_BYTES == 78


def test_another_decoder_reads_the_same() -> None:
    """The record's key is version and type, its value version and coordinator epoch."""
    (checked,) = split_batches(sample(committed=False), MARKER_BYTES)
    (record,) = decode_trusted_batch(*checked)

    assert struct.unpack(">hh", record.key or b"") == (0, 0)
    assert struct.unpack(">hi", record.value or b"") == (0, 5)
    assert (record.offset, record.timestamp_ms) == (0, 1_700_000_000_000)


@given(st.booleans(), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_what_was_encoded_is_read_back(committed: bool, coordinator: int, producer: int, epoch: int) -> None:
    """A marker that was written, replicated and read says what it said."""
    marker = Marker(committed, coordinator)
    header, view = encode_marker(marker, producer_id=producer, producer_epoch=epoch, timestamp_ms=1)

    assert header.marker == marker_of(view) == marker
    assert with_marker(parse_header(view), view) == header
    assert header.producer == ProducerStamp(producer, epoch, -1)
    assert header.attributes == TRANSACTIONAL_BIT | CONTROL_BIT


def test_users_are_given_no_record_of_a_marker() -> None:
    """A control batch takes an offset, and holds nothing for a consumer."""
    assert decode_batch(sample()) == []


def test_no_client_can_write_a_marker() -> None:
    """The check of what producers send refuses the control bit."""
    with pytest.raises(Refused, match="control bit is set"):
        check_batch(sample())


def test_a_plain_batch_is_left_alone() -> None:
    """Only the header of a control batch is given what its record says."""
    batch = memoryview(encode_batch([NewRecord(None, b"v", 1)]))
    header = parse_header(batch)

    assert with_marker(header, batch) is header


@pytest.mark.parametrize(
    ("position", "value"), [(61, 34), (62, 1), (65, 10), (67, 1), (69, 2), (70, 10), (72, 1), (77, 2)]
)
def test_another_control_record_is_refused(position: int, value: int) -> None:
    """A log with a control batch that this release cannot read could not be folded."""
    changed = bytearray(sample())
    changed[position] = value

    with pytest.raises(Refused) as caught:
        marker_of(changed)
    assert caught.value.refusal.code is ErrorCode.CORRUPT_MESSAGE


def test_a_control_batch_of_another_length_is_refused() -> None:
    """Also where it would be read beyond its end."""
    with pytest.raises(Refused, match="77 bytes long"):
        marker_of(sample()[:-1])


def test_a_marker_without_a_producer_is_refused() -> None:
    """It would end nobody's transaction."""
    view = sample()

    with pytest.raises(Refused, match="names no producer"):
        with_marker(parse_header(view)._replace(producer=None), view)


def test_a_marker_passes_the_check_of_a_follower() -> None:
    """Its CRC, count and offsets are those of any batch."""
    view = bytearray(sample())
    struct.pack_into(">i", view, 12, 4)

    assert [batch.header.leader_epoch for batch in check_replicated(view, 0)] == [4]
