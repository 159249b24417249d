"""What a log makes of transactional batches and markers: open, ended, aborted, fenced (X11 to X13, T82 to T88)."""

from __future__ import annotations

import pytest
from core_builders import batch, marker
from hypothesis import given, strategies as st

from strandline.core.log.producers import MarkerVerdict, ProducerLedger, SequenceVerdict, TransactionLedger
from strandline.core.types import NO_TRANSACTIONS, AbortedTransaction, BatchHeader, Marker, Offset, TransactionState

NEXT, OUT_OF_ORDER, FENCED = SequenceVerdict.NEXT, SequenceVerdict.OUT_OF_ORDER, SequenceVerdict.FENCED
APPEND, KNOWN = MarkerVerdict.APPEND, MarkerVerdict.KNOWN
OLD_EPOCH, LATE_COPY, FENCED_COORDINATOR = (
    MarkerVerdict.OLD_EPOCH,
    MarkerVerdict.LATE_COPY,
    MarkerVerdict.FENCED_COORDINATOR,
)
A, B, C = 7, 8, 9


def sent(sequence: int = 0, *, producer: int = A, epoch: int = 0, records: int = 1, plain: bool = False) -> BatchHeader:
    """A transactional batch."""
    return batch(records, producer=producer, producer_epoch=epoch, sequence=sequence, transactional=not plain)


class Log:
    """A ledger that is folded batch by batch, from any offset on."""

    def __init__(self, offset: int = 0) -> None:
        self.ledger = ProducerLedger()
        self.offset = offset

    def at(self, offset: int) -> Log:
        """Others wrote up to ``offset``."""
        self.offset = offset
        return self

    def add(self, *headers: BatchHeader) -> Log:
        """Append and fold."""
        for header in headers:
            self.ledger.observe(header, Offset(self.offset))
            self.offset += header.record_count
        return self

    def first_unstable(self, hw: int) -> int | None:
        """Where the first undecided transaction begins, once everything below ``hw`` is committed."""
        self.ledger.transactions.settled(Offset(hw))
        return self.ledger.transactions.first_unstable

    def verdict(self, epoch: int, *, coordinator: int = 1, producer: int = A) -> MarkerVerdict:
        """What a commit marker would be."""
        known_epoch = self.ledger.newest_epoch(producer)
        return self.ledger.transactions.judge(producer, epoch, Marker(True, coordinator), known_epoch)[0]


def test_a_marker_of_an_unknown_producer_fences_it() -> None:
    """T82: a partition that was added and never written to; lower epochs and later sequences are refused."""
    log = Log(27)
    assert log.verdict(2) is APPEND
    check = log.add(marker(A, 2)).ledger.check

    assert check(sent(0, epoch=0)).verdict is FENCED
    assert check(sent(17, epoch=2)).verdict is OUT_OF_ORDER
    assert check(sent(0, epoch=2)).verdict is NEXT


def test_sequences_begin_again_after_the_marker_of_a_higher_epoch() -> None:
    """T83: the next transaction begins at 0 in the marker's epoch or a higher one."""
    check = Log().add(sent(0), sent(1), marker(A, 1, commit=False)).ledger.check

    assert check(sent(2, epoch=1)).verdict is OUT_OF_ORDER
    assert check(sent(2, epoch=2)).verdict is OUT_OF_ORDER
    assert check(sent(0, epoch=1)).verdict is NEXT


def test_a_marker_that_lost_its_epochs_batches_still_gives_a_definite_refusal() -> None:
    """A log that lost its beginning and knows the marker knows that nothing of the epoch was appended."""
    assert Log().add(marker(A, 2)).ledger.check(sent(3, epoch=2), log_start_offset=Offset(5)).verdict is OUT_OF_ORDER


def test_the_first_unstable_offset_waits_for_markers_below_the_high_watermark() -> None:
    """T84: an end counts once its marker is below the HW, and the next open transaction holds back from then on."""
    log = Log(99).add(sent(producer=A)).at(105).add(sent(producer=B))
    assert log.first_unstable(99) == 99
    log.at(109).add(marker(A, 1))
    assert [log.first_unstable(hw) for hw in (99, 100, 109, 110)] == [99, 99, 99, 105]
    log.at(112).add(marker(B, 1, commit=False))

    assert [log.first_unstable(hw) for hw in (110, 112, 113)] == [105, 105, None]


def test_transactions_end_in_any_order() -> None:
    """T85: the first unstable offset moves only with the transaction that it belongs to."""
    log = Log(100)
    for offset, producer in ((100, A), (125, B), (157, C)):
        log.at(offset).add(sent(producer=producer))
    log.at(200).add(marker(A, 1))
    assert log.first_unstable(201) == 125
    log.at(210).add(marker(C, 1))
    assert log.first_unstable(211) == 125
    log.at(220).add(marker(B, 1))

    assert [log.first_unstable(hw) for hw in (220, 221)] == [125, None]


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_newer_coordinator_fences_the_older_one(reloaded: bool) -> None:
    """T86: a copy of the last marker is known, one of a newer coordinator is appended, then the older one is fenced;
    also after the log was opened from a snapshot."""
    log = Log(100).add(sent(), marker(A, 1, coordinator=1))
    assert [log.verdict(1, coordinator=epoch) for epoch in (1, 2)] == [KNOWN, APPEND]
    log.add(marker(A, 1, coordinator=2))
    if reloaded:
        log.ledger = ProducerLedger(log.ledger.rows(), log.ledger.transactions.state())

    assert log.verdict(1, coordinator=1) is FENCED_COORDINATOR
    assert log.ledger.transactions.state().aborted == ()


def test_a_transaction_that_a_later_marker_ended_is_over() -> None:
    """A coordinator whose own marker comes after one of a later epoch has nothing left to end, and must not ask for
    ever; while something is open there, it is not over."""
    log = Log().add(sent(epoch=3), marker(A, 9))

    assert [log.verdict(4), log.verdict(8)] == [KNOWN, KNOWN]
    assert log.add(sent(epoch=9)).verdict(4) is OLD_EPOCH


def test_only_the_marker_of_the_next_epoch_ends_a_transaction() -> None:
    """T88: KAFKA-19446, a late copy carries the epoch in which the next transaction is open; KAFKA-19999, a copy of the
    marker that ended the last one is done; a marker of a newer coordinator changes nothing but its fence."""
    log = Log().add(sent(epoch=5))
    assert [log.verdict(5), log.verdict(6)] == [LATE_COPY, APPEND]
    log.add(marker(A, 6, commit=False))
    assert log.verdict(6) is KNOWN
    assert log.verdict(6, coordinator=2) is APPEND
    before = log.ledger.transactions.state().aborted
    log.add(marker(A, 6, coordinator=2))
    assert (log.first_unstable(log.offset), log.ledger.transactions.state().aborted) == (None, before)
    log.add(sent(epoch=6))

    assert [log.verdict(6, coordinator=2), log.verdict(7, coordinator=2)] == [LATE_COPY, APPEND]


TABLE = [
    # known of the producer: batch epoch, open, marker epoch and coordinator; the marker: epoch, coordinator; verdict
    (None, False, None, 3, 1, APPEND),
    (2, True, None, 3, 1, APPEND),
    (2, False, None, 3, 1, APPEND),
    (2, True, None, 2, 1, LATE_COPY),
    (2, False, None, 2, 1, APPEND),
    (2, True, None, 1, 1, OLD_EPOCH),
    (2, False, None, 1, 1, OLD_EPOCH),
    (None, False, (2, 4), 1, 4, KNOWN),
    (3, False, (2, 4), 2, 4, OLD_EPOCH),
    (3, False, (2, 4), 1, 4, KNOWN),
    (2, True, (2, 4), 1, 4, OLD_EPOCH),
    (None, False, (2, 4), 2, 4, KNOWN),
    (None, False, (2, 4), 2, 5, APPEND),
    (None, False, (2, 4), 2, 3, FENCED_COORDINATOR),
    (None, False, (2, 4), 3, 3, FENCED_COORDINATOR),
    (None, False, (2, 4), 3, 4, APPEND),
    (2, True, (2, 4), 2, 4, LATE_COPY),
    (2, True, (2, 4), 2, 5, LATE_COPY),
    (2, True, (2, 4), 3, 4, APPEND),
    (2, True, (2, 4), 3, 3, FENCED_COORDINATOR),
]


@pytest.mark.parametrize(("epoch", "is_open", "last", "marker_epoch", "coordinator", "expected"), TABLE)
def test_what_a_marker_is_to_a_log(
    epoch: int | None,
    is_open: bool,
    last: tuple[int, int] | None,
    marker_epoch: int,
    coordinator: int,
    expected: MarkerVerdict,
) -> None:
    """X11: the table of markers, row by row."""
    log = Log()
    if last is not None:
        log.add(marker(A, last[0], coordinator=last[1]))
    if epoch is not None:
        log.add(sent(epoch=epoch, plain=not is_open))

    assert log.verdict(marker_epoch, coordinator=coordinator) is expected


def test_aborted_transactions_of_a_range() -> None:
    """X15: every aborted transaction with an offset in the range counts, also one that began before it."""
    log = Log().add(sent(records=3), sent(producer=B), marker(A, 1, commit=False), sent(producer=C))
    log.add(marker(C, 1), marker(B, 1, commit=False))
    first, second = (
        AbortedTransaction(A, Offset(0), Offset(4), Offset(3)),
        AbortedTransaction(B, Offset(3), Offset(7), Offset(8)),
    )
    between = log.ledger.transactions.aborted_between

    assert log.ledger.transactions.state().aborted == (first, second)
    assert between(Offset(0), Offset(8)) == (first, second)
    assert between(Offset(2), Offset(3)) == (first,)
    assert between(Offset(5), Offset(6)) == (second,)
    assert between(Offset(8), Offset(9)) == ()


def test_what_was_aborted_below_the_log_start_is_forgotten() -> None:
    """No reader can be given its records any more; one whose marker is still there is kept."""
    log = Log().add(sent(), marker(A, 1, commit=False), sent(epoch=1), marker(A, 2, commit=False))
    log.ledger.transactions.log_begins_at(Offset(3))

    assert [t.marker_offset for t in log.ledger.transactions.state().aborted] == [3]


def test_a_log_that_begins_within_a_transaction_knows_it() -> None:
    """C43, X15: what a leader says of its log start makes a replica that folds the rest come to the same list."""
    headers = [sent(), sent(producer=B), sent(1), marker(A, 1, commit=False), marker(B, 1)]
    log = Log().add(*headers)
    below = log.ledger.transactions.state_below(Offset(2))
    replica = Log(2)
    replica.ledger = ProducerLedger(log.ledger.rows_below(Offset(2), 100), below)
    replica.add(*headers[2:])

    assert [t[:3] for t in replica.ledger.transactions.state().aborted] == [(A, 0, 3)]
    assert replica.first_unstable(5) is None


def test_a_log_without_transactions_remembers_none() -> None:
    """The state of an ordinary log is the one constant, so that it costs nothing to keep."""
    assert Log().add(sent(plain=True), batch(2)).ledger.transactions.state() is NO_TRANSACTIONS


ACTIONS = st.lists(st.tuples(st.sampled_from((A, B)), st.sampled_from(("send", "commit", "abort"))), max_size=30)


def _headers(actions: list[tuple[int, str]]) -> list[BatchHeader]:
    headers: list[BatchHeader] = []
    epochs, sequences = {A: 0, B: 0}, {A: 0, B: 0}
    for producer, action in actions:
        if action == "send":
            headers.append(sent(sequences[producer], producer=producer, epoch=epochs[producer]))
            sequences[producer] += 1
        else:
            epochs[producer] += 1
            sequences[producer] = 0
            headers.append(marker(producer, epochs[producer], commit=action == "commit"))
    return headers


@given(ACTIONS, st.integers(0, 30), st.integers(1, 30))
def test_a_range_names_all_that_overlap_it(actions: list[tuple[int, str]], start: int, length: int) -> None:
    """X15: whichever transactions are open beside the aborted ones, and in whichever order they end."""
    transactions = Log().add(*_headers(actions)).ledger.transactions
    end = start + length
    overlapping = [t for t in transactions.state().aborted if t.first_offset < end and t.marker_offset >= start]

    assert list(transactions.aborted_between(Offset(start), Offset(end))) == overlapping


class _NotLookedAt(AbortedTransaction):
    @property
    def first_offset(self) -> Offset:  # type: ignore[override]
        raise AssertionError("nothing that ended so much later overlaps the range")


def test_a_range_costs_what_overlaps_it() -> None:
    """The LSO of a transaction at its end bounds what ended later, so a reader of an old range reads no whole list."""
    overlaps = AbortedTransaction(A, Offset(0), Offset(1), Offset(2))
    later = [_NotLookedAt(A, Offset(at), Offset(at + 1), Offset(at + 2)) for at in range(2, 100, 2)]
    ledger = TransactionLedger(TransactionState(aborted=(overlaps, *later)))

    assert ledger.aborted_between(Offset(0), Offset(2)) == (overlaps,)


@given(ACTIONS, st.data())
def test_a_ledger_from_any_snapshot_is_the_ledger_of_the_log(
    actions: list[tuple[int, str]], data: st.DataObject
) -> None:
    """X12: the state at any offset, and the batches behind it, give what the whole log gives."""
    headers = _headers(actions)
    cut = data.draw(st.integers(0, len(headers)))
    whole, front = Log().add(*headers), Log().add(*headers[:cut])
    front.ledger = ProducerLedger(front.ledger.rows(), front.ledger.transactions.state())
    front.add(*headers[cut:])

    assert _as_sets(front.ledger.transactions.state()) == _as_sets(whole.ledger.transactions.state())
    assert set(front.ledger.rows()) == set(whole.ledger.rows())


def _as_sets(state: TransactionState) -> tuple[object, ...]:
    return state.open, state.ended, state.aborted, set(state.markers)
