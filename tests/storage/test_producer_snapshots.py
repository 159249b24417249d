"""Producer state stored beside a log: used only if whole, and in at most two files."""

from __future__ import annotations

import pytest

from strandline.core.types import Offset, ProducerBatch
from strandline.storage.producer_snapshot import drop_snapshots_above, newest_snapshot, save_snapshot, snapshot_paths

ROWS = [
    ProducerBatch(7, 0, 0, 4, Offset(0), Offset(4), 1_000),
    ProducerBatch(1 << 40, 32_000, (1 << 31) - 2, 3, Offset(5), Offset(10), -1),
]


def test_rows_come_back(tmp_path) -> None:
    """Saved state is read back, with its offset, in order."""
    save_snapshot(tmp_path, Offset(11), ROWS)

    assert newest_snapshot(tmp_path, Offset(11)) == (11, ROWS)
    assert newest_snapshot(tmp_path, Offset(10)) == (0, [])


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

    assert newest_snapshot(tmp_path, Offset(99)) == (5, ROWS[:1])


def test_renamed_snapshot_is_not_believed(tmp_path) -> None:
    """The CRC covers the offset, so a file cannot be used for another offset."""
    save_snapshot(tmp_path, Offset(5), ROWS)
    snapshot_paths(tmp_path)[0].rename(tmp_path / f"{6:020}.snapshot")

    assert newest_snapshot(tmp_path, Offset(9)) == (0, [])


def test_cut_log_drops_later_snapshots(tmp_path) -> None:
    """Snapshots above the truncation point describe records that are gone."""
    for offset in (5, 9):
        save_snapshot(tmp_path, Offset(offset), ROWS)
    drop_snapshots_above(tmp_path, Offset(8))

    assert newest_snapshot(tmp_path, Offset(99))[0] == 5
