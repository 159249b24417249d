"""S22: lag of consumer groups in time."""

from __future__ import annotations

from typing import Any

import pytest

S = 1_000_000


def test_the_age_counts_from_when_the_hw_passed_the_offset(histories: Any) -> None:
    """It rises while the group does not commit, a commit that is not enough lets it go on, and caught up it is 0."""
    row = histories.rows("s22", "group_lag")[1]

    assert (row.partition, row.group_id) == (0, "orders")
    assert row.mean_us == pytest.approx(200e6 / 55, rel=1e-12)
    assert (row.max_us, row.estimated_us, row.at_least_us) == (20 * S, 0, None)
    assert row.coverage == pytest.approx(55 / 60, rel=1e-12)


def test_what_began_before_anything_was_read_has_a_lower_bound(histories: Any) -> None:
    """The HW was above the offset at the first look, so the age is at least the time since, and in no figure."""
    row = histories.rows("s22", "group_lag")[0]

    assert (row.group_id, row.mean_us, row.max_us, row.estimated_us) == ("audit", None, None, 0)
    assert (row.at_least_us, row.coverage) == (57 * S, 0.0)


def test_a_look_stands_in_for_an_advance_that_was_not_reported(histories: Any) -> None:
    """The age counts from the first look above the offset, and for how long it does is counted."""
    batch, orders = histories.rows("s22", "group_lag")[2:]

    assert (orders.mean_us, orders.max_us, orders.estimated_us) == (5e6, 20 * S, 20 * S)
    assert orders.coverage == pytest.approx(40 / 60, rel=1e-12)
    assert batch.mean_us == pytest.approx(50e6 / 30, rel=1e-12)
    assert (batch.max_us, batch.estimated_us, batch.coverage) == (10 * S, 10 * S, 0.5)


def test_a_record_that_an_unclean_election_removed_is_not_waited_for(histories: Any) -> None:
    """The record that is there could be read since the HW passed the offset again: 20 s, and not since 10 s."""
    row = histories.rows("s22", "group_lineage")[0]

    assert (row.partition, row.max_us, row.at_least_us, row.coverage) == (0, 20 * S, None, 1.0)
    assert row.mean_us == pytest.approx(400e6 / 60, rel=1e-12)


def test_a_record_that_a_new_leader_holds_goes_on_to_age(histories: Any) -> None:
    """A clean leader begins with a lower HW and holds the record: its age counts from the old leader's advance."""
    row = histories.rows("s22", "group_lineage")[1]

    assert (row.partition, row.max_us, row.at_least_us, row.coverage) == (1, 50 * S, None, 1.0)
    assert row.mean_us == pytest.approx((200e6 + 28 * 36e6) / 60, rel=1e-12)


def test_without_a_group_nothing_is_said(histories: Any) -> None:
    """Without an offset the age is null, not 0."""
    row = histories.row("s22", "lag")

    assert (row.group_id, row.mean_us, row.max_us, row.coverage) == (None, None, None, 0.0)
