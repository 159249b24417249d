"""S8: shrinks and expands."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(("end_ms", "expands"), [(60_000, 1), (70_000, 1), (70_001, 2), (80_000, 2)])
def test_w1_counts_what_lies_in_the_window(histories: Any, end_ms: int, expands: int) -> None:
    """A transition at the start of a window is inside, one at its end is outside."""
    row = histories.row("s08", "w1_clipping", end_ms=end_ms)

    assert (row.shrinks, row.removals) == (2, 2)
    assert (row.expands, row.adds) == (expands, expands)
    assert row.coverage == 1.0


def test_w2_counts_over_a_change_of_leader(histories: Any) -> None:
    """The leader change in between is neither a shrink nor an expand."""
    row = histories.row("s08", "w2_rejoin", end_ms=1_200_000)

    assert (row.shrinks, row.removals, row.expands, row.adds) == (3, 3, 2, 2)


@pytest.mark.parametrize("history", ["controller_failover", "clock_back", "recreated", "lost"])
def test_what_is_no_transition_is_not_counted(histories: Any, history: str) -> None:
    """Snapshots, creations and apparent changes of a clock going back do not count; lost events count as a gap."""
    counts = [(row.shrinks, row.expands, row.n_gap, row.clock_regressions) for row in histories.rows("s08", history)]

    assert (
        counts
        == {
            "controller_failover": [(1, 1, 0, 0)],
            "clock_back": [(3, 1, 0, 2)],
            "recreated": [(1, 0, 0, 0), (0, 1, 0, 0)],
            "lost": [(1, 0, 4, 0)],
        }[history]
    )


def test_where_nothing_was_known_no_count_is_reported(histories: Any) -> None:
    """A shrink that was seen counts though the state is unknown; a window without any knowledge has null, not 0."""
    first, second, third = histories.rows("s08", "unknown_start")

    assert (first.shrinks, first.coverage) == (1, 40 / 60)
    assert (second.shrinks, second.coverage) == (1, 10 / 60)
    assert (third.shrinks, third.coverage) == (None, 0.0)
