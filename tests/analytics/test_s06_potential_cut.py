"""S6: what a failover would have truncated."""

from __future__ import annotations

from typing import Any

import pytest

MS = 1_000


def test_best_and_worst_member(histories: Any) -> None:
    """The worst case is the member that is furthest behind, the best the one that is nearest."""
    row = histories.row("s06", "lag")

    assert row.clean_worst_mean_records == pytest.approx(700 / 45, rel=1e-12)
    assert (row.clean_worst_max_records, row.clean_best_max_records) == (40, 30)
    assert row.unclean_committed_max_records is None
    assert (row.no_clean_successor_us, row.n_below_hw) == (0, 0)


def test_a_leader_alone_has_no_clean_successor(histories: Any) -> None:
    """Alone and unknown are not 0: the mean is over the 30 s in which a successor's position was known."""
    row = histories.row("s06", "alone")

    assert (row.clean_worst_mean_records, row.clean_worst_max_records, row.clean_best_max_records) == (35.0, 35, 35)
    assert row.no_clean_successor_us == 10_000 * MS
    assert row.unclean_committed_max_records == 10
    assert row.n_below_hw == 1
