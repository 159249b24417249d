"""S18: stalls of the HW."""

from __future__ import annotations

from typing import Any

MS = 1_000


def test_a_slow_follower_blocks(histories: Any) -> None:
    """3 s up to the first of the joined advances, blocked by the replica that was at the HW until the end."""
    row = histories.row("s18", "coalesced")

    assert (row.episodes, row.total_us, row.longest_us) == (1, 3_000 * MS, 3_000 * MS)
    assert row.blockers == {3: 1}
    assert (row.under_min_episodes, row.ended_by_epoch, row.censored) == (0, 0, 0)


def test_the_leaders_own_disk_blocks_and_the_window_cuts(histories: Any) -> None:
    """2,500 ms by the leader itself; 10 s of a stall that continues after the window."""
    row = histories.row("s18", "slow_disk")

    assert (row.episodes, row.total_us, row.longest_us, row.censored) == (2, 12_500 * MS, 10_000 * MS, 1)
    assert row.blockers == {1: 1, 2: 1}


def test_below_the_minimum_nobody_blocks(histories: Any) -> None:
    """The HW may not move: the stall has another cause than a slow member, and ends with the epoch."""
    row = histories.row("s18", "under_min_stall")

    assert (row.episodes, row.total_us, row.under_min_episodes, row.ended_by_epoch) == (1, 14_500 * MS, 1, 1)
    assert row.blockers is None


def test_known_and_calm_is_0(histories: Any) -> None:
    """Samples without a stall count as 0 stalls; without samples the value is null."""
    assert histories.row("s18", "w1_clipping").episodes is None
    assert histories.row("s18", "w1_clipping").coverage == 0.0
