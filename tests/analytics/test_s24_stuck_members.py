"""S24: members that are stuck."""

from __future__ import annotations

from typing import Any

S = 1_000_000


def test_a_member_is_stuck_while_it_has_the_partition(histories: Any) -> None:
    """From its last commit to the end of its assignment; who has the partition next has a minute of its own."""
    row = histories.rows("s24", "stuck", end_ms=240_000)[1]

    assert (row.topic, row.partition, row.group_id, row.member_id) == ("t", 0, "orders", "m-a")
    assert (row.episodes, row.total_us, row.longest_us) == (1, 110 * S, 110 * S)
    assert (row.grew_records, row.lag_records, row.coverage) == (30, 50, 1.0)


def test_a_lag_that_does_not_grow_is_nobodys_fault(histories: Any) -> None:
    """Ten records behind for four minutes, and nothing was written: known, and nobody stuck."""
    row = histories.rows("s24", "stuck", end_ms=240_000)[2]

    assert (row.partition, row.group_id, row.member_id) == (1, "orders", None)
    assert (row.episodes, row.total_us, row.longest_us, row.coverage) == (0, 0, None, 1.0)


def test_a_window_has_its_part_of_the_time(histories: Any) -> None:
    """110 s over windows of one minute: 20, 60 and 30 s."""
    rows = histories.rows("s24", "stuck", end_ms=240_000, step_ms=60_000)
    found = [row.total_us for row in rows if row.member_id == "m-a"]

    assert found == [20 * S, 60 * S, 30 * S]


def test_without_a_group_nothing_is_said(histories: Any) -> None:
    """No commits, no figure: not 0 stuck members."""
    row = histories.row("s24", "lag")

    assert (row.group_id, row.episodes, row.total_us, row.coverage) == (None, None, None, 0.0)


def test_a_member_whose_assignment_is_repeated_is_known_to_have_it(histories: Any) -> None:
    """No change was read. It is stuck from the first repetition on, and the second one does not part the time."""
    row = histories.rows("s24", "repeated", end_ms=240_000)[1]

    assert (row.group_id, row.member_id, row.episodes, row.total_us) == ("calm", "m-a", 1, 178 * S)
    assert (row.grew_records, row.lag_records) == (50, 60)
