"""S25: commits that were refused, and partitions that nobody had."""

from __future__ import annotations

from typing import Any

S = 1_000_000


def test_refusals_are_counted_by_error(histories: Any) -> None:
    """Errors of all reports are added up, beside the commits that were taken."""
    first, second = (histories.rows("s25", "rebalances")[n] for n in (2, 3))

    assert [(row.partition, row.group_id) for row in (first, second)] == [(0, "orders"), (1, "orders")]
    assert (first.commits, first.refused, first.refused_by_error) == (3, 0, None)
    assert (second.commits, second.refused) == (1, 7)
    assert second.refused_by_error == {"STALE_MEMBER_EPOCH": 3, "UNKNOWN_MEMBER_ID": 4}


def test_a_partition_that_is_asked_back_has_no_owner(histories: Any) -> None:
    """7 s between two owners, and 20 s after the second was fenced; not before the first one had it."""
    first, second = (histories.rows("s25", "rebalances")[n] for n in (2, 3))

    assert (second.unowned, second.unowned_us, second.unowned_longest_us) == (2, 27 * S, 20 * S)
    assert (first.unowned, first.unowned_us, first.unowned_longest_us) == (0, 0, None)


def test_a_group_without_members_misses_no_owner(histories: Any) -> None:
    """Nobody reads, because nobody is there: an ordinary end of a group, which committed nothing either."""
    row = histories.rows("s25", "rebalances")[1]

    assert (row.partition, row.group_id) == (0, "batch")
    assert (row.unowned, row.unowned_us, row.commits, row.refused) == (0, 0, None, None)


def test_who_had_what_is_null_where_no_member_was_seen(histories: Any) -> None:
    """Commits alone say nothing of owners."""
    row = histories.rows("s25", "group_lag")[1]

    assert (row.group_id, row.commits, row.unowned, row.unowned_us) == ("orders", 3, None, None)


def test_an_owner_who_was_only_repeated_is_missed_when_it_is_gone(histories: Any) -> None:
    """Who had the partition is known by a repetition alone: without an owner between that one and the next."""
    rows = histories.rows("s25", "repeated", end_ms=240_000)
    found = {(row.partition, row.group_id): (row.unowned, row.unowned_us) for row in rows if row.topic == "t"}

    assert found[1, "calm"] == (1, 20 * S)
    assert found[0, "calm"] == (0, 0)
