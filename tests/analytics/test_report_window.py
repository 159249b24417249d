"""A report is about what was known at the end of its window."""

from __future__ import annotations

from typing import Any

from strandline_analytics.report.gather import as_of
from strandline_analytics.scope import Scope
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

MS = 1_000


def test_a_chain_ends_with_the_window(histories: Any) -> None:
    """Of two shrinks of one chain, the second comes after the window: the report tells of the first alone."""
    whole = histories.rows("s17", "incidents")[-1]
    end_us = whole.began_us + 1
    rows = result(ALL["s17"], as_of(histories.tables, end_us), Scope(start_us=0, end_us=end_us)).collect()
    last = max((row for row in rows if row.cluster_id == "incidents"), key=lambda row: row.began_us)

    assert whole.shrinks == 2
    assert (last.began_us, last.ended_us, last.shrinks) == (whole.began_us, whole.began_us, 1)
