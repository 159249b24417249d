"""S12: time to rejoin."""

from __future__ import annotations

from typing import Any

import pytest

MS = 1_000


def _by_replica(rows: list[Any]) -> dict[int, Any]:
    return {row.replica_id: row for row in rows}


def test_w1_a_stay_that_the_window_cuts_is_censored(histories: Any) -> None:
    """Replica 2 is back after 15 s; replica 3 is not back at 60 s: at least 50 s, and in no percentile."""
    rows = _by_replica(histories.rows("s12", "w1_clipping"))

    assert (rows[2].rejoins, rows[2].censored, rows[2].p50_us) == (1, 0, 15_000 * MS)
    assert (rows[3].rejoins, rows[3].censored, rows[3].p50_us) == (0, 1, None)
    assert (rows[3].max_censored_us, rows[3].out_us) == (50_000 * MS, 50_000 * MS)


@pytest.mark.parametrize(("end_ms", "rejoins"), [(70_000, 0), (80_000, 1)])
def test_w1_a_return_at_the_end_of_the_window_is_out(histories: Any, end_ms: int, rejoins: int) -> None:
    """The return at 70 s belongs to a window that continues after it."""
    row = _by_replica(histories.rows("s12", "w1_clipping", end_ms=end_ms))[3]

    assert (row.rejoins, row.censored) == (rejoins, 1 - rejoins)
    assert row.max_us == (60_000 * MS if rejoins else None)
    assert row.out_us == 60_000 * MS


def test_w2_a_stay_outlives_a_change_of_leader(histories: Any) -> None:
    """40 s, 120 s, and 200 s censored; not 30 s, which counting a leader change would give for the first."""
    (row,) = histories.rows("s12", "w2_rejoin", end_ms=1_200_000)

    assert (row.replica_id, row.rejoins, row.censored) == (3, 2, 1)
    assert (row.p50_us, row.p95_us, row.max_us) == (40_000 * MS, 120_000 * MS, 120_000 * MS)
    assert (row.out_us, row.max_censored_us) == (360_000 * MS, 200_000 * MS)


def test_a_return_that_was_read_counts_whatever_was_lost_behind_it(histories: Any) -> None:
    """A stay of 10 s ends with its return, and one whose removal was lost is censored; so is one with an unseen end."""
    lost_behind, lost_before = (histories.rows("s12", "return_before_hole", end_ms=120_000)[n] for n in (0, 1))

    assert (lost_behind.rejoins, lost_behind.censored, lost_behind.max_us) == (1, 1, 10_000 * MS)
    assert (lost_behind.out_us, lost_behind.max_censored_us) == (40_000 * MS, 30_000 * MS)
    assert (lost_before.rejoins, lost_before.censored, lost_before.out_us) == (0, 1, 5_000 * MS)


def test_the_phases_of_a_stay_add_up(histories: Any) -> None:
    """Down until the last unfencing, catching up until the proposal after it, waiting until the commit."""
    rows = _by_replica(histories.rows("s12", "rejoin_phases"))

    assert (rows[3].rejoins, rows[3].p50_us, rows[3].max_us) == (2, 5_010 * MS, 22_029 * MS)
    assert (rows[3].down_us, rows[3].catch_up_us, rows[3].admission_us) == (18_999 * MS, 7_000 * MS, 1_040 * MS)
    assert (rows[2].down_us, rows[2].catch_up_us, rows[2].admission_us) == (0, 5_000 * MS, 20 * MS)


def test_a_replica_placed_elsewhere_does_not_rejoin(histories: Any) -> None:
    """Its stay ends as reassigned; the newcomer's first entry is not a rejoin, because it never left."""
    rows = _by_replica(histories.rows("s12", "reassignment"))

    assert (rows[3].rejoins, rows[3].reassigned, rows[3].censored, rows[3].out_us) == (0, 1, 0, 10_000 * MS)
    assert (rows[4].rejoins, rows[4].reassigned, rows[4].censored, rows[4].out_us) == (0, 0, 1, 10_000 * MS)
