"""Control batches: the marker of a transaction as bytes, and what a reader of committed records keeps."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from strandline.core.errors import ErrorCode, Refused
from strandline.core.log.producers import ProducerLedger
from strandline.core.types import OF_TRANSACTIONS, TRANSACTIONAL_BIT, BatchHeader, Marker, Offset, ProducerStamp
from strandline.records import codec
from strandline.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT as TRANSACTIONAL_BIT_CONTROL,
    Batch,
    check_batch,
    check_replicated,
    committed,
    parse_header,
    split_batches,
)

NO_BYTES = memoryview(b"")


def log_of(*actions: tuple[int, str]) -> list[BatchHeader]:
    """One batch of one record per action: (producer, "send", "commit", "abort" or "plain")."""
    epochs: dict[int, int] = {}
    headers = []
    for offset, (producer, action) in enumerate(actions):
        attributes, marker = TRANSACTIONAL_BIT, None
        if action in ("commit", "abort"):
            epochs[producer] = epochs.get(producer, 0) + 1
            attributes, marker = OF_TRANSACTIONS, Marker(action == "commit", 1)
        stamp = ProducerStamp(producer, epochs.get(producer, 0), 0) if action != "plain" else None
        header = BatchHeader(Offset(offset), None, 1, 61, 1, stamp, 0 if stamp is None else attributes)
        headers.append(header._replace(marker=marker))
    return headers


def given_of(headers: list[BatchHeader], start: int = 0, end: int | None = None) -> list[int]:
    """Offsets that are given of a part of the log, with the aborted transactions that a node names for it."""
    ledger = ProducerLedger()
    for header in headers:
        ledger.observe(header, header.base_offset)
    part = headers[start:end]
    named = ledger.transactions.aborted_between(Offset(start), Offset(start + len(part)))
    batches = [Batch(header._replace(marker=None), NO_BYTES) for header in part]
    return [batch.header.base_offset for batch in committed(batches, [t[:2] for t in reversed(named)])]


def test_aborted_records_and_markers_are_left_out() -> None:
    """Of the same producer the committed transaction before and after it is given."""
    headers = log_of((7, "send"), (7, "commit"), (7, "send"), (8, "send"), (7, "abort"), (7, "send"), (8, "commit"))

    assert given_of(headers) == [0, 3, 5]


def test_an_answer_that_begins_within_an_aborted_transaction() -> None:
    """X15: its beginning lies below what was asked for."""
    headers = log_of((7, "send"), (9, "plain"), (7, "send"), (7, "abort"), (7, "send"), (7, "commit"))

    assert given_of(headers, 1) == [1, 4]
    assert given_of(headers, 1, 3) == [1]


def test_a_fence_ends_nothing() -> None:
    """A marker without an open transaction, or a second one, changes nothing for what follows."""
    headers = log_of((7, "abort"), (7, "send"), (7, "abort"), (7, "commit"), (7, "send"), (7, "commit"))

    assert given_of(headers) == [4]


@pytest.mark.parametrize("plain", [(7, "plain"), (8, "plain")])
def test_a_batch_outside_of_transactions_is_always_given(plain: tuple[int, str]) -> None:
    """Of any sender."""
    assert given_of(log_of((7, "send"), plain, (7, "abort"))) == [1]


ACTIONS = st.lists(st.tuples(st.sampled_from((7, 8)), st.sampled_from(("send", "commit", "abort", "plain"))))


@given(ACTIONS, st.integers(0, 20), st.integers(0, 20))
def test_every_part_of_a_log_gives_what_the_whole_gives(
    actions: list[tuple[int, str]], start: int, length: int
) -> None:
    """X15: wherever answers begin and end, together they give each committed record once."""
    ended = [*actions, (7, "commit"), (8, "abort")]
    headers = log_of(*ended)
    whole = given_of(headers)
    end = start + length

    assert given_of(headers, start, end) == [offset for offset in whole if start <= offset < end]
    outcome = {}
    expected = []
    for offset in reversed(range(len(ended))):
        producer, action = ended[offset]
        if action in ("commit", "abort"):
            outcome[producer] = action
        elif action == "plain" or outcome[producer] == "commit":
            expected.append(offset)
    assert whole == expected[::-1]


# The marker of a transaction as bytes: Kafka's control record, and nothing else.


def sample(*, committed: bool = True, coordinator: int = 5) -> memoryview:
    """A marker of producer 7 in epoch 3."""
    marker = Marker(committed, coordinator)
    return codec.encode_marker(marker, producer_id=7, producer_epoch=3, timestamp_ms=1_700_000_000_000).view


def test_a_marker_is_laid_out_as_kafkas() -> None:
    """KIP-98: byte for byte, but for the CRC, which is checked by reading it back."""
    content = sample().hex()

    assert content[: 17 * 2] == "000000000000000000000042ffffffff02"
    assert content[21 * 2 :] == (
        "0030" "00000000" "0000018bcfe56800" "0000018bcfe56800" "0000000000000007" "0003" "ffffffff" "00000001"
        "20" "00" "00" "00" "08" "0000" "0001" "0c" "0000" "00000005" "00"
    )  # fmt: skip
    assert len(sample()) == codec.MARKER_BYTES == 78


def test_another_decoder_reads_the_same() -> None:
    """The record's key is version and type, its value version and coordinator epoch."""
    (checked,) = split_batches(sample(committed=False), codec.MARKER_BYTES)
    (record,) = codec.decode_trusted_batch(*checked)

    assert struct.unpack(">hh", record.key or b"") == (0, 0)
    assert struct.unpack(">hi", record.value or b"") == (0, 5)
    assert (record.offset, record.timestamp_ms) == (0, 1_700_000_000_000)


@given(st.booleans(), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_what_was_encoded_is_read_back(committed: bool, coordinator: int, producer: int, epoch: int) -> None:
    """A marker that was written, replicated and read says what it said."""
    marker = Marker(committed, coordinator)
    header, view = codec.encode_marker(marker, producer_id=producer, producer_epoch=epoch, timestamp_ms=1)

    assert header.marker == codec.marker_of(view) == marker
    assert codec.with_marker(parse_header(view), view) == header
    assert header.producer == ProducerStamp(producer, epoch, -1)
    assert header.attributes == TRANSACTIONAL_BIT_CONTROL | CONTROL_BIT


def test_users_are_given_no_record_of_a_marker() -> None:
    """A control batch takes an offset, and holds nothing for a consumer."""
    assert codec.decode_batch(sample()) == []


def test_no_client_can_write_a_marker() -> None:
    """The check of what producers send refuses the control bit."""
    with pytest.raises(Refused, match="control bit is set"):
        check_batch(sample())


def test_a_plain_batch_is_left_alone() -> None:
    """Only the header of a control batch is given what its record says."""
    batch = memoryview(codec.encode_batch([codec.NewRecord(None, b"v", 1)]))
    header = parse_header(batch)

    assert codec.with_marker(header, batch) is header


@pytest.mark.parametrize(
    ("position", "value"), [(61, 34), (62, 1), (65, 10), (67, 1), (69, 2), (70, 10), (72, 1), (77, 2)]
)
def test_another_control_record_is_refused(position: int, value: int) -> None:
    """A log with a control batch that this release cannot read could not be folded."""
    changed = bytearray(sample())
    changed[position] = value

    with pytest.raises(Refused) as caught:
        codec.marker_of(changed)
    assert caught.value.refusal.code is ErrorCode.CORRUPT_MESSAGE


def test_a_control_batch_of_another_length_is_refused() -> None:
    """Also where it would be read beyond its end."""
    with pytest.raises(Refused, match="77 bytes long"):
        codec.marker_of(sample()[:-1])


def test_a_marker_without_a_producer_is_refused() -> None:
    """It would end no transaction."""
    view = sample()

    with pytest.raises(Refused, match="names no producer"):
        codec.with_marker(parse_header(view)._replace(producer=None), view)


def test_a_marker_passes_the_check_of_a_follower() -> None:
    """Its CRC, count and offsets are those of any batch."""
    view = bytearray(sample())
    struct.pack_into(">i", view, 12, 4)

    assert [batch.header.leader_epoch for batch in check_replicated(view, 0)] == [4]
