"""S15: flaps."""

from __future__ import annotations

from typing import Any


def test_w2_flaps_once(histories: Any) -> None:
    """The removal at 80 s is 30 s after the return; the one at 1,000 s is 800 s after it and begins a new session."""
    (row,) = histories.rows("s15", "w2_rejoin", end_ms=1_200_000)

    assert (row.replica_id, row.removals, row.flaps, row.sessions, row.flapping_sessions) == (3, 3, 1, 2, 1)


def test_what_came_before_the_window_is_looked_at_and_not_counted(histories: Any) -> None:
    """Ten minutes are within ten minutes, and a session that began before the window flaps in it."""
    second, third = histories.rows("s15", "flapping", end_ms=1_200_000)

    assert (second.replica_id, second.removals, second.flaps, second.sessions, second.flapping_sessions) == (
        2,
        1,
        0,
        1,
        0,
    )
    assert (third.replica_id, third.removals, third.flaps, third.sessions, third.flapping_sessions) == (3, 2, 2, 2, 1)
