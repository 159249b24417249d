"""S19: failover time."""

from __future__ import annotations

from typing import Any

MS = 1_000


def test_the_phases_of_failovers(histories: Any) -> None:
    """A death has three phases, a clean stop has nothing to detect, a restart is not a failover."""
    row = histories.row("s19", "failover")

    assert (row.leader_changes, row.failovers) == (3, 2)
    assert (row.detect_p50_us, row.detect_max_us) == (6_000 * MS, 6_000 * MS)
    assert (row.elect_p50_us, row.elect_max_us) == (5 * MS, 10 * MS)
    assert (row.activate_p50_us, row.activate_max_us) == (15 * MS, 50 * MS)
    assert (row.total_max_us, row.n_negative, row.clock_err_us) == (6_060 * MS, 0, 2 * MS)


def test_a_time_without_a_leader_is_part_of_the_election(histories: Any) -> None:
    """The election lasts from the fence of the last leader to the commit of the next: 20,002 ms."""
    row = histories.row("s19", "unclean")

    assert (row.leader_changes, row.failovers) == (2, 1)
    assert (row.detect_max_us, row.elect_max_us, row.activate_max_us) == (5_998 * MS, 20_002 * MS, 100 * MS)
    assert row.total_max_us == 26_100 * MS


def test_a_preferred_election_is_no_failover(histories: Any) -> None:
    """A leader change without a fence has neither a detection nor an election to wait for."""
    row = histories.row("s19", "zombies")

    assert (row.leader_changes, row.failovers, row.detect_max_us, row.elect_max_us) == (1, 0, None, None)
    assert row.activate_max_us == 500 * MS
