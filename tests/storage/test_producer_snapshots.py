"""Producer state stored beside a log: used only if whole, and in at most two files."""

from __future__ import annotations

import pytest

from strandline.core.types import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    EndedTransaction,
    LastMarker,
    Offset,
    OpenTransaction,
    ProducerBatch,
    TransactionState,
)
from strandline.storage.producer_snapshot import (
    NO_SNAPSHOT,
    drop_snapshots_above,
    newest_snapshot,
    save_snapshot,
    snapshot_paths,
)

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
    save_snapshot(tmp_path, Offset(11), ROWS)

    assert newest_snapshot(tmp_path, Offset(11)) == (11, ROWS, NO_TRANSACTIONS)
    assert newest_snapshot(tmp_path, Offset(10)) == NO_SNAPSHOT


def test_newest_two_are_kept(tmp_path) -> None:
    """Older snapshots are removed when a new one is written."""
    for offset in (5, 9, 11):
        save_snapshot(tmp_path, Offset(offset), ROWS)

    assert [int(path.stem) for path in snapshot_paths(tmp_path)] == [9, 11]


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[:10], lambda c: b"", lambda c: c[:-1] + b"\x7f"])
def test_damaged_snapshot_gives_way_to_the_one_before(tmp_path, damage) -> None:
    """A snapshot with a wrong CRC counts as missing, and the one before it is used."""
    save_snapshot(tmp_path, Offset(5), ROWS[:1])
    save_snapshot(tmp_path, Offset(11), ROWS)
    newest = snapshot_paths(tmp_path)[-1]
    newest.write_bytes(damage(newest.read_bytes()))

    assert newest_snapshot(tmp_path, Offset(99)) == (5, ROWS[:1], NO_TRANSACTIONS)


def test_renamed_snapshot_is_not_believed(tmp_path) -> None:
    """The CRC covers the offset, so a file cannot be used for another offset."""
    save_snapshot(tmp_path, Offset(5), ROWS)
    snapshot_paths(tmp_path)[0].rename(tmp_path / f"{6:020}.snapshot")

    assert newest_snapshot(tmp_path, Offset(9)) == NO_SNAPSHOT


def test_cut_log_drops_later_snapshots(tmp_path) -> None:
    """Snapshots above the truncation point describe records that are gone."""
    for offset in (5, 9):
        save_snapshot(tmp_path, Offset(offset), ROWS)
    drop_snapshots_above(tmp_path, Offset(8))

    assert newest_snapshot(tmp_path, Offset(99))[0] == 5


def test_transactions_come_back(tmp_path) -> None:
    """X12: the state of transactions is read back beside the batches."""
    save_snapshot(tmp_path, Offset(11), ROWS, STATE)

    assert newest_snapshot(tmp_path, Offset(11)) == (11, ROWS, STATE)


def test_a_log_without_transactions_is_written_for_an_earlier_release(tmp_path) -> None:
    """Its snapshot has format 1, byte for byte; only with the state of a transaction it has format 2."""
    for offset, state in ((5, NO_TRANSACTIONS), (11, STATE)):
        save_snapshot(tmp_path, Offset(offset), ROWS, state)

    plain, of_transactions = (path.read_bytes() for path in snapshot_paths(tmp_path))
    assert (plain[:4], len(plain)) == (b"SLP1", 20 + 2 * 42)
    assert of_transactions[:4] == b"SLP2"


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-1], lambda c: c[:-20], lambda c: c + b"\0", lambda c: c[:20] + c[62:]]
)
def test_a_damaged_snapshot_of_transactions_gives_way(tmp_path, damage) -> None:
    """X12: a state that may be wrong would show aborted records, so it is not believed."""
    save_snapshot(tmp_path, Offset(5), ROWS[:1], STATE)
    save_snapshot(tmp_path, Offset(11), ROWS, STATE)
    newest = snapshot_paths(tmp_path)[-1]
    newest.write_bytes(damage(newest.read_bytes()))

    assert newest_snapshot(tmp_path, Offset(99)) == (5, ROWS[:1], STATE)
