"""Producers and transactions after a restart, from snapshots and from the log."""

from __future__ import annotations

import crc32c
import pytest

from strandline.core.types import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    EndedTransaction,
    LastMarker,
    LeaderEpoch,
    Marker,
    Offset,
    OpenTransaction,
    ProducerBatch,
    TransactionState,
)
from strandline.records.batch import TRANSACTIONAL_BIT, Batch, parse_header, split_batches
from strandline.records.codec import NewRecord, encode_batch, encode_marker
from strandline.storage import producer_snapshot
from strandline.storage.disk import StorageDamaged
from strandline.storage.log import Log


def data(producer: int, epoch: int, sequence: int) -> Batch:
    """A transactional batch of one record."""
    records = [NewRecord(None, b"v", 1)]
    changed = bytearray(encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))
    changed[22] |= TRANSACTIONAL_BIT
    changed[17:21] = crc32c.crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return Batch(parse_header(changed), memoryview(bytes(changed)))


def end(producer: int, epoch: int, *, commit: bool) -> Batch:
    return encode_marker(Marker(commit, 1), producer_id=producer, producer_epoch=epoch, timestamp_ms=1)


def fill(log: Log) -> None:
    """Producer 7 aborts a transaction at 0 and 2, producer 8 commits one at 1 and 3, 7 opens the next at 4."""
    for batch in (data(7, 0, 0), data(8, 0, 0), end(7, 1, commit=False), end(8, 1, commit=True), data(7, 1, 0)):
        log.append([batch], log.leo, LeaderEpoch(1))


def aborted(log: Log) -> list[tuple[int, ...]]:
    """Producer, first offset, marker and LSO of each aborted transaction."""
    return [tuple(t) for t in log.producers().transactions.state().aborted]


def test_transactions_are_read_from_the_log(log, build) -> None:
    """X12: without a snapshot every header is folded, and of control batches the record."""
    fill(log)
    again = build.log()

    assert aborted(log) == aborted(again) == [(7, 0, 2, 1)]
    assert [tuple(t) for t in again.producers().transactions.state().open] == [(7, 4)]
    assert [m.coordinator_epoch for m in again.producers().transactions.state().markers] == [1, 1]


def test_a_snapshot_within_a_transaction_gives_the_same(log, build) -> None:
    """X12: state at any batch's end, and the batches behind it, make what the whole log makes."""
    fill(log)
    for batch in (data(8, 1, 0), end(8, 2, commit=False)):
        producers = log.producers()
        log.save_producers(log.leo, producers.rows(), producers.transactions.state())
        log.append([batch], log.leo, LeaderEpoch(1))

    assert aborted(log) == [(7, 0, 2, 1), (8, 5, 6, 4)]
    for path in build.path.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])
    assert aborted(log) == [(7, 0, 2, 1), (8, 5, 6, 4)]


def test_a_torn_tail_takes_its_marker_with_it(log, build) -> None:
    """X13: after an unclean stop a snapshot above what is durable is not believed, nor the markers that are gone."""
    fill(log)
    log.note_durable(Offset(2))
    log.checkpoints.recovery_points.save()
    producers = log.producers()
    log.save_producers(Offset(5), producers.rows(), producers.transactions.state())
    segment = log.active_segment
    segment.path.write_bytes(segment.path.read_bytes()[: log.bytes_between(Offset(0), Offset(2)) + 30])
    again = build.log()

    assert again.leo == 2
    assert aborted(again) == []
    assert [tuple(t) for t in again.producers().transactions.state().open] == [(7, 0), (8, 1)]


def test_a_cut_opens_what_it_took_the_marker_of(log) -> None:
    """X13: also where the newest snapshot lies above the cut."""
    fill(log)
    producers = log.producers()
    log.save_producers(log.leo, producers.rows(), producers.transactions.state())
    log.truncate_to(Offset(2))

    assert [tuple(t) for t in log.producers().transactions.state().open] == [(7, 0), (8, 1)]


def test_a_log_begins_again_with_the_transactions_below_it(log, build) -> None:
    """C43: the state is durable with the new start, also where no batch is remembered beside it."""
    fill(log)
    state = log.producers().transactions.state_below(Offset(5))
    log.truncate_fully_and_start_at(Offset(500), (), state)

    assert build.log().producers().transactions.state() == state
    assert [tuple(t) for t in state.open] == [(7, 4)]


def test_a_control_batch_that_is_no_marker_is_damage(log) -> None:
    """Its CRC may be right: what cannot be folded cannot be served."""
    changed = bytearray(end(7, 1, commit=True).view)
    changed[69] = 9
    changed[17:21] = crc32c.crc32c(bytes(changed[21:])).to_bytes(4, "big")
    log.append(split_batches(bytes(changed)), log.leo, LeaderEpoch(1))

    with pytest.raises(StorageDamaged, match="not a marker"):
        log.producers()


# Producer state stored beside a log: used only if whole, and in at most two files.


ROWS = [
    ProducerBatch(7, 0, 0, 4, Offset(0), Offset(4), 1_000),
    ProducerBatch(1 << 40, 32_000, (1 << 31) - 2, 3, Offset(5), Offset(10), -1),
]


STATE = TransactionState(
    open=(OpenTransaction(7, Offset(3)), OpenTransaction(9, Offset(8))),
    ended=(EndedTransaction(Offset(1), Offset(6)),),
    aborted=(AbortedTransaction(1 << 40, Offset(1), Offset(6), Offset(3)),),
    markers=(LastMarker(1 << 40, 32_001, 5, Offset(6), 1_700_000_000_000),),
)


def test_rows_come_back(tmp_path) -> None:
    """Saved state is read back, with its offset, in order."""
    producer_snapshot.save_snapshot(tmp_path, Offset(11), ROWS)

    assert producer_snapshot.newest_snapshot(tmp_path, Offset(11)) == (11, ROWS, NO_TRANSACTIONS)
    assert producer_snapshot.newest_snapshot(tmp_path, Offset(10)) == producer_snapshot.NO_SNAPSHOT


def test_newest_two_are_kept(tmp_path) -> None:
    """Older snapshots are removed when a new one is written."""
    for offset in (5, 9, 11):
        producer_snapshot.save_snapshot(tmp_path, Offset(offset), ROWS)

    assert [int(path.stem) for path in producer_snapshot.snapshot_paths(tmp_path)] == [9, 11]


@pytest.mark.parametrize("state", [NO_TRANSACTIONS, STATE], ids=["of producers", "of transactions"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda c: b"",
        lambda c: c[:10],
        lambda c: c[:-20],
        lambda c: c[:-1],
        lambda c: c[:-1] + b"\x7f",
        lambda c: c + b"\0",
        lambda c: c[:20] + c[62:],
    ],
)
def test_damaged_snapshot_gives_way_to_the_one_before(tmp_path, damage, state) -> None:
    """X12: a snapshot with a wrong CRC counts as missing: a state that may be wrong would show aborted records."""
    producer_snapshot.save_snapshot(tmp_path, Offset(5), ROWS[:1], state)
    producer_snapshot.save_snapshot(tmp_path, Offset(11), ROWS, state)
    newest = producer_snapshot.snapshot_paths(tmp_path)[-1]
    newest.write_bytes(damage(newest.read_bytes()))

    assert producer_snapshot.newest_snapshot(tmp_path, Offset(99)) == (5, ROWS[:1], state)


def test_renamed_snapshot_is_not_believed(tmp_path) -> None:
    """The CRC covers the offset, so a file cannot be used for another offset."""
    producer_snapshot.save_snapshot(tmp_path, Offset(5), ROWS)
    producer_snapshot.snapshot_paths(tmp_path)[0].rename(tmp_path / f"{6:020}.snapshot")

    assert producer_snapshot.newest_snapshot(tmp_path, Offset(9)) == producer_snapshot.NO_SNAPSHOT


def test_cut_log_drops_later_snapshots(tmp_path) -> None:
    """Snapshots above the truncation point describe records that are gone."""
    for offset in (5, 9):
        producer_snapshot.save_snapshot(tmp_path, Offset(offset), ROWS)
    producer_snapshot.drop_snapshots_above(tmp_path, Offset(8))

    assert producer_snapshot.newest_snapshot(tmp_path, Offset(99))[0] == 5


def test_transactions_come_back(tmp_path) -> None:
    """X12: the state of transactions is read back beside the batches."""
    producer_snapshot.save_snapshot(tmp_path, Offset(11), ROWS, STATE)

    assert producer_snapshot.newest_snapshot(tmp_path, Offset(11)) == (11, ROWS, STATE)


def test_a_log_without_transactions_is_written_for_an_earlier_release(tmp_path) -> None:
    """Its snapshot has format 1, byte for byte; only with the state of a transaction it has format 2."""
    for offset, state in ((5, NO_TRANSACTIONS), (11, STATE)):
        producer_snapshot.save_snapshot(tmp_path, Offset(offset), ROWS, state)

    plain, of_transactions = (path.read_bytes() for path in producer_snapshot.snapshot_paths(tmp_path))
    assert (plain[:4], len(plain)) == (b"SLP1", 20 + 2 * 42)
    assert of_transactions[:4] == b"SLP2"
