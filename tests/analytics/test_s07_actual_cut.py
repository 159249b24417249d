"""S7: what was truncated."""

from __future__ import annotations

from typing import Any


def test_zombies_widen_the_tail(histories: Any) -> None:
    """Records that a deposed leader appended are distinguished from those that existed when the epoch ended."""
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
    """Epochs are counted where no sample shows what was before them; their tails are null, not 0."""
    row = histories.row("s07", "failover")

    assert (row.epochs, row.truncations) == (3, 0)
    assert row.committed_lost_records is None


def test_a_loss_that_is_not_known_is_not_made_zero_by_one_that_is(histories: Any) -> None:
    """An unknown loss and a loss of none are an unknown loss, for new leaders and for truncations alike."""
    row = histories.rows("s07", "unknown_losses")[0]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records, row.tail_cut_records) == (2, 1, None, None)
    assert (row.truncations, row.truncated_records, row.own_hw_unknown, row.committed_cut_records) == (1, 40, 1, None)


def test_a_known_loss_beside_an_unknown_one_is_a_lower_bound(histories: Any) -> None:
    """The known part is shown, with how many epochs and truncations it leaves out."""
    row = histories.rows("s07", "unknown_losses")[1]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records, row.tail_cut_records) == (2, 1, 20, 30)
    assert (row.truncations, row.own_hw_unknown, row.committed_cut_records) == (2, 1, 20)


def test_the_first_epoch_of_a_new_topic_loses_nothing(histories: Any) -> None:
    """There was nothing before it: 0, and not unknown."""
    row = histories.rows("s07", "unknown_losses")[2]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records, row.tail_cut_records) == (1, 0, 0, 0)


def test_where_nothing_was_cut_no_committed_record_was(histories: Any) -> None:
    """Without a truncation the records cut below an HW are 0, and no HW is unknown."""
    row = histories.rows("s07", "unknown_losses")[3]

    assert (row.epochs, row.truncations, row.own_hw_unknown, row.committed_cut_records) == (0, 0, 0, 0)
