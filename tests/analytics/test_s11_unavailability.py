"""S11: unavailability."""

from __future__ import annotations

from typing import Any

MS = 1_000


def test_no_leader_stops_reads_and_too_few_members_stop_writes(histories: Any) -> None:
    """60 s without writes, 20 s of them without reads; two activations took 100 and 50 ms."""
    row = histories.row("s11", "unclean")

    assert row.write_unavailable_us == 60_000 * MS
    assert row.read_unavailable_us == 20_000 * MS
    assert row.activation_gap_us == 150 * MS


def test_the_gap_of_an_activation_is_in_the_controllers_time(histories: Any) -> None:
    """The new leader's clock is 300 ms ahead, and that is not waiting time: 50 + 15 + 4 ms."""
    row = histories.row("s11", "failover")

    assert row.write_unavailable_us == 19_995 * MS
    assert row.read_unavailable_us == 0
    assert row.activation_gap_us == 69 * MS


def test_w1_refuses_writes_below_the_minimum(histories: Any) -> None:
    """15 s under the minimum, and never without a leader."""
    row = histories.row("s11", "w1_clipping")

    assert (row.write_unavailable_us, row.read_unavailable_us, row.activation_gap_us) == (15_000 * MS, 0, 0)
