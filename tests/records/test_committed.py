"""What a reader of committed records keeps of an answer: no marker, nothing that was aborted (X14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.log.producers import ProducerLedger
from strandline.core.types import OF_TRANSACTIONS, TRANSACTIONAL_BIT, BatchHeader, Marker, Offset, ProducerStamp
from strandline.records.batch import Batch, committed

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
