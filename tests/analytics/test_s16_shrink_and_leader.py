"""S16: shrinks and leader changes."""

from __future__ import annotations

from typing import Any


def test_one_decision_is_simultaneous(histories: Any) -> None:
    """Two changes with a shrink in their own partition epoch; the third has one 9,995 ms before it."""
    row = histories.row("s16", "failover")

    assert (row.leader_changes, row.simultaneous, row.shrink_precedes, row.shrink_follows, row.unrelated) == (
        3,
        2,
        1,
        0,
        0,
    )


def test_ten_seconds_are_the_border(histories: Any) -> None:
    """A shrink exactly 10 s before the change precedes it; one 20 s away is unrelated."""
    near = histories.row("s16", "w2_rejoin", end_ms=60_000)
    far = histories.row("s16", "unclean")

    assert (near.leader_changes, near.shrink_precedes) == (1, 1)
    assert (far.leader_changes, far.simultaneous, far.unrelated) == (3, 1, 2)


def test_the_nearest_shrink_counts_and_of_two_the_earlier(histories: Any) -> None:
    """A shrink 0.5 s after the change follows it; of two that are both 5 s away the earlier epoch counts."""
    row = histories.row("s16", "follows")

    assert (row.leader_changes, row.shrink_precedes, row.shrink_follows) == (2, 1, 1)


def test_creating_a_topic_changes_no_leader(histories: Any) -> None:
    """The first leader of a new topic has no predecessor."""
    assert [row.leader_changes for row in histories.rows("s16", "recreated")] == [0, 0]


def _of_shrinks(row: Any) -> tuple[int, int, int, int, int]:
    return row.shrinks, row.shrinks_simultaneous, row.shrinks_before, row.shrinks_after, row.shrinks_unrelated


def test_each_shrink_has_its_nearest_change_of_leader(histories: Any) -> None:
    """Three shrinks around two changes: one after the first, one before the second, one after it."""
    assert _of_shrinks(histories.row("s16", "follows")) == (3, 0, 1, 2, 0)


def test_a_shrink_in_the_decision_that_changed_the_leader_is_simultaneous(histories: Any) -> None:
    """Both shrinks of the failovers, and the one that left a partition without a leader."""
    assert _of_shrinks(histories.row("s16", "failover")) == (2, 2, 0, 0, 0)
    assert _of_shrinks(histories.row("s16", "unclean")) == (1, 1, 0, 0, 0)


def test_a_shrink_is_unrelated_beyond_ten_seconds(histories: Any) -> None:
    """The shrink at 10 s comes exactly 10 s before the change; those at 80 s and 1,000 s have none near them."""
    assert _of_shrinks(histories.row("s16", "w2_rejoin", end_ms=1_200_000)) == (3, 0, 1, 0, 2)
    assert [_of_shrinks(row)[0] for row in histories.rows("s16", "recreated")] == [1, 0]
