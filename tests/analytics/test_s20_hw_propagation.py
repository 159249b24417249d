"""S20: HW propagation."""

from __future__ import annotations

from typing import Any

MS = 1_000


def _reported(rows: list[Any]) -> dict[int, tuple[Any, ...]]:
    return {row.replica_id: (row.observations, row.p50_us, row.max_us, row.behind_max_records) for row in rows}


def test_each_new_hw_is_measured_once(histories: Any) -> None:
    """A new HW is measured from the leader's first HW of at least this value to the follower's first sample of it."""
    rows = histories.rows("s20", "coalesced")

    assert _reported(rows) == {2: (2, 120 * MS, 200 * MS, 0), 3: (2, 220 * MS, 700 * MS, 15)}
    assert rows[1].behind_mean_records == 7.5


def test_nobody_is_less_than_nothing_behind(histories: Any) -> None:
    """A follower above every reported HW of its leader is counted, and its delay is not known."""
    rows = histories.rows("s20", "skewed")

    assert {row.replica_id: (row.behind_max_records, row.behind_mean_records, row.n_ahead) for row in rows} == {
        2: (0, 0.0, 0),
        3: (None, None, 1),
        4: (10, 10.0, 0),
    }


def test_two_clocks_are_brought_together_and_never_clamped(histories: Any) -> None:
    """A measured clock is corrected, an unmeasured one may give less than 0, which is flagged."""
    rows = histories.rows("s20", "skewed")

    assert {row.replica_id: (row.p50_us, row.n_negative, row.clock_err_us) for row in rows} == {
        2: (100 * MS, 0, 1_500),
        3: (-10 * MS, 1, None),
        4: (2_000 * MS, 0, None),
    }
