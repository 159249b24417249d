"""A report contains only what was known at the end of its window."""

from __future__ import annotations

from typing import Any

import pytest

from strandline_analytics.report.gather import as_of
from strandline_analytics.scope import Scope
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

MS = 1_000
SKEW_S = 12


def test_a_chain_ends_with_the_window(histories: Any) -> None:
    """Of two shrinks of one chain, the second comes after the window: the report has only the first."""
    whole = histories.rows("s17", "incidents")[-1]
    end_us = whole.began_us + 1
    rows = result(ALL["s17"], as_of(histories.tables, end_us), Scope(start_us=0, end_us=end_us)).collect()
    last = max((row for row in rows if row.cluster_id == "incidents"), key=lambda row: row.began_us)

    assert whole.shrinks == 2
    assert (last.began_us, last.ended_us, last.shrinks) == (whole.began_us, whole.began_us, 1)


@pytest.mark.slow
def test_a_window_ends_by_the_controllers_clock(histories_with_variants: Any) -> None:
    """Node 1's clock is 12 s ahead, and measured: events from before the end are not taken for later ones."""
    scope = Scope(start_us=0, end_us=45_000_001)
    tables = as_of(histories_with_variants.tables, scope.end_us)
    reported = {row.cluster_id: row for stat in ("s07",) for row in result(ALL[stat], tables, scope).collect()}
    plain, skewed = reported["measured 0 s:unclean"], reported[f"measured {SKEW_S} s:unclean"]

    assert (plain.truncations, plain.committed_lost_records) == (1, 20)
    assert (skewed.truncations, skewed.committed_lost_records) == (1, 20)


@pytest.mark.slow
def test_a_copy_is_counted_in_the_window_in_which_it_was_reported(histories_with_variants: Any) -> None:
    """A copy of node 1's event at 45 s, whose measured clock is 12 s ahead, belongs to the window up to 50 s."""
    rows = histories_with_variants.rows("s08", "measured twice:unclean", step_ms=10_000)

    assert [row.n_duplicate for row in rows] == [0, 0, 0, 0, 1, 0]
