"""Idempotent producing as seen by one log: sequences, duplicates, epochs, wrap-around (M61)."""

from __future__ import annotations

import pytest
from core_builders import batch
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.log.producers import REMEMBERED_BATCHES, SEQUENCE_MODULUS, ProducerLedger, SequenceVerdict
from strandline.core.types import BatchHeader, Offset

NEXT, DUPLICATE = SequenceVerdict.NEXT, SequenceVerdict.DUPLICATE
OUT_OF_ORDER, TOO_OLD, FENCED = SequenceVerdict.OUT_OF_ORDER, SequenceVerdict.TOO_OLD, SequenceVerdict.FENCED
UNKNOWN = SequenceVerdict.UNKNOWN


def sent(sequence: int, records: int = 1, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    """A batch of producer 7."""
    return batch(records, producer=producer, producer_epoch=epoch, sequence=sequence)


def ledger(*headers: BatchHeader) -> ProducerLedger:
    """A ledger that has seen the batches, one after the other from offset 0."""
    built, offset = ProducerLedger(), 0
    for header in headers:
        built.observe(header, Offset(offset))
        offset += header.record_count
    return built


def test_a_producer_begins_at_zero() -> None:
    """For an unknown producer only sequence 0 is next."""
    assert ledger().check(sent(0)).verdict is NEXT
    assert ledger().check(sent(1)).verdict is OUT_OF_ORDER


def test_a_log_without_its_beginning_does_not_let_a_forgotten_producer_go_on() -> None:
    """After a restart at a higher log start, which removed records, an unknown producer starts again at sequence 0."""
    assert ledger().check(sent(7), log_start_offset=Offset(1)).verdict is UNKNOWN
    assert ledger().check(sent(0), log_start_offset=Offset(1)).verdict is NEXT
    assert ledger(sent(0)).check(sent(7), log_start_offset=Offset(1)).verdict is OUT_OF_ORDER


def test_without_a_producer_id_everything_is_next() -> None:
    """A batch that is not idempotent is neither checked nor stored."""
    built = ledger(batch(3))

    assert built.check(batch(3)).verdict is NEXT
    assert built.rows() == ()


def test_five_batches_are_recognised() -> None:
    """M61: the last five batches are duplicates with their own offsets, an older one is too old."""
    built = ledger(*(sent(2 * i, 2) for i in range(6)))
    checks = [built.check(sent(2 * i, 2)) for i in range(6)]

    assert [c.verdict for c in checks] == [TOO_OLD] + [DUPLICATE] * REMEMBERED_BATCHES
    assert [c.first.first_offset for c in checks if c.first] == [2, 4, 6, 8, 10]
    assert [c.first.last_offset for c in checks if c.first] == [3, 5, 7, 9, 11]


def test_a_gap_is_out_of_order() -> None:
    """A batch that leaves a gap is rejected with the expected sequence."""
    check = ledger(sent(0, 3)).check(sent(4))

    assert (check.verdict, check.expected_sequence) == (OUT_OF_ORDER, 3)


def test_half_a_duplicate_is_none() -> None:
    """A batch that begins like a known one but ends elsewhere is not a duplicate and is not appended."""
    assert ledger(sent(0, 3)).check(sent(0, 2)).verdict is TOO_OLD


def test_sequences_wrap() -> None:
    """Sequences wrap from 2^31 - 1 to 0; a batch may span the wrap and be recognised again."""
    last = SEQUENCE_MODULUS - 1
    # A ledger may be rebuilt from a log whose producer is near the wrap.
    built = ledger(sent(last - 1, 1), sent(last, 3))

    assert built.check(sent(2)).verdict is NEXT
    assert built.check(sent(last, 3)).verdict is DUPLICATE
    assert built.check(sent(last - 1, 1)).verdict is DUPLICATE
    assert built.check(sent(3)).verdict is OUT_OF_ORDER
    assert built.check(sent(last - 2)).verdict is TOO_OLD
    assert built.rows()[-1].last_sequence == 1


def test_a_newer_producer_epoch_begins_anew() -> None:
    """A newer epoch begins at 0, fences the older one, and has its own duplicates."""
    built = ledger(sent(0), sent(1))

    assert built.check(sent(0, epoch=1)).verdict is NEXT
    assert built.check(sent(2, epoch=1)).verdict is OUT_OF_ORDER
    built.observe(sent(0, epoch=1), Offset(2))
    assert built.check(sent(2, epoch=0)).verdict is FENCED
    assert built.check(sent(0, epoch=0)).verdict is FENCED
    found = built.check(sent(0, epoch=1))
    assert found.verdict is DUPLICATE and found.first is not None and found.first.first_offset == 2


def test_producers_do_not_meet() -> None:
    """Two producers of one log have independent sequences."""
    built = ledger(sent(0), sent(0, producer=8), sent(1))

    assert built.check(sent(1, producer=8)).verdict is NEXT
    assert built.check(sent(1)).verdict is DUPLICATE


@pytest.mark.parametrize("count", [0, 1, 5, 9])
def test_rows_make_the_same_ledger_again(count: int) -> None:
    """M61: a ledger that is stored and read again gives the same decisions."""
    built = ledger(*(sent(i) for i in range(count)))
    again = ProducerLedger(built.rows())

    assert again.rows() == built.rows()
    assert [again.check(sent(i)).verdict for i in range(12)] == [built.check(sent(i)).verdict for i in range(12)]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=25), st.integers(0, 24))
def test_cutting_is_forgetting(batches: list[tuple[int, int]], kept: int) -> None:
    """The ledger is a function of the log: folding a prefix gives the ledger of a log truncated there."""
    headers, due = [], {0: 0, 1: 0, 2: 0}
    for records, producer in batches:
        headers.append(sent(due[producer], records, producer=producer))
        due[producer] += records
    prefix = ledger(*headers[:kept])
    expected: dict[int, int] = {}
    for header in headers[:kept]:
        assert header.producer is not None
        expected[header.producer.producer_id] = header.producer.base_sequence + header.record_count

    for producer in range(3):
        assert prefix.check(sent(expected.get(producer, 0), producer=producer)).verdict is NEXT
