"""S13: detection delay."""

from __future__ import annotations

from typing import Any

MS = 1_000


def test_delays_are_measured_from_the_last_caught_up_time(histories: Any) -> None:
    """12, 16 and 6 s, one unknown; 16 s is above 1.5 times the 10 s of its leader, 6 s exactly 1.5 times 4 s."""
    (row,) = histories.rows("s13", "causes")

    assert (row.removed_by, row.removals, row.unknown) == ("leader", 4, 1)
    assert (row.min_us, row.p50_us, row.p95_us, row.max_us) == (6_000 * MS, 12_000 * MS, 16_000 * MS, 16_000 * MS)
    assert (row.below_limit, row.above_expected, row.n_negative) == (0, 1, 0)


def test_removals_by_the_controller_are_distinguished(histories: Any) -> None:
    """The progress of the removed replicas was not reported: counted as unknown, without a delay."""
    (row,) = histories.rows("s13", "failover")

    assert (row.removed_by, row.removals, row.unknown, row.p50_us) == ("controller", 2, 2, None)
