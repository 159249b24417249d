"""S7: what was cut."""

from __future__ import annotations

from typing import Any


def test_zombies_widen_the_tail(histories: Any) -> None:
    """What a deposed leader appended is told apart from what was there when the epoch ended."""
    row = histories.row("s07", "zombies")

    assert (row.epochs, row.tail_cut_records, row.tail_cut_with_zombies_records) == (1, 3, 28)
    assert row.committed_lost_records == 0
    assert (row.truncations, row.truncated_records, row.truncated_max_records, row.committed_cut_records) == (
        1,
        28,
        28,
        0,
    )


def test_what_is_lost_is_lost_once(histories: Any) -> None:
    """An unclean election loses 20 committed records; the next epoch starts above what was left and loses none."""
    row = histories.row("s07", "unclean")

    assert (row.epochs, row.tail_cut_records, row.tail_cut_with_zombies_records) == (2, 40, 40)
    assert row.committed_lost_records == 20
    assert (row.truncated_records, row.committed_cut_records) == (40, 20)


def test_an_epoch_before_which_nothing_was_seen_has_no_tail(histories: Any) -> None:
    """Epochs are counted where no look tells what was before them; their tails are null, not 0."""
    row = histories.row("s07", "failover")

    assert (row.epochs, row.truncations) == (3, 0)
    assert row.committed_lost_records is None
