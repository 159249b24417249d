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


def test_a_replica_that_cut_below_its_own_hw_proves_a_part_of_a_loss(histories: Any) -> None:
    """Epoch 2 lost at least 20 by the cuts to its start; they prove nothing of epoch 3, in which one of them was."""
    row = histories.rows("s07", "unknown_losses")[4]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records) == (2, 2, 20)
    assert _losses(row)[1:] == (None, None, None)


def _losses(row: Any) -> tuple[int | None, int | None, int | None, int | None]:
    return (
        row.committed_lost_records,
        row.committed_lost_min_bytes,
        row.committed_lost_max_bytes,
        row.avoidable_lost_records,
    )


def test_what_a_longer_live_replica_had_was_avoidable(histories: Any) -> None:
    """20 lost; the replica that was not elected had 15 of them. The bytes lie between nearest positions."""
    assert _losses(histories.rows("s07", "avoidable")[0]) == (20, 1_500, 2_500, 15)


def test_what_a_fenced_replica_had_was_not_avoidable(histories: Any) -> None:
    """Node 2 had 15 more, but was fenced: 0. Where no look knows bytes, how many were lost is not known."""
    assert _losses(histories.rows("s07", "avoidable")[1]) == (20, None, None, 0)


def test_without_the_decision_the_avoidable_part_is_not_known(histories: Any) -> None:
    """Who was live is in the controller's decision alone: null, and not 0."""
    assert _losses(histories.rows("s07", "avoidable")[2]) == (20, 1_500, 2_500, None)


def test_without_the_election_the_avoidable_part_is_not_known(histories: Any) -> None:
    """An election that was not reported may have been unclean: null, and not 0."""
    assert _losses(histories.rows("s07", "avoidable")[4]) == (20, 1_500, 2_500, None)


def test_what_an_epoch_lost_no_replica_has_for_the_next(histories: Any) -> None:
    """Two unclean elections lose 10 each. Node 4 was seen at 95, of which the first left 90: 10 of the second's were
    avoidable. What the second lost is not known in bytes, so there is no upper bound."""
    assert _losses(histories.rows("s07", "avoidable")[3]) == (20, None, None, 10)


def test_a_clean_election_loses_nothing_that_could_be_avoided(histories: Any) -> None:
    """Where nothing was lost, it was 0 bytes and 0 records."""
    assert _losses(histories.row("s07", "zombies")) == (0, 0, 0, 0)
