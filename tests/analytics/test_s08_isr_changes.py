"""S8: shrinks and expands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import result
from strandline_analytics.stats.s08_isr_changes import STATISTIC

MS = 1_000


@pytest.mark.parametrize(("end_ms", "expands"), [(60_000, 1), (70_000, 1), (70_001, 2), (80_000, 2)])
def test_w1_counts_what_lies_in_the_window(silver: Callable[[str], Silver], end_ms: int, expands: int) -> None:
    """A transition at the start of a window is in, one at its end is out."""
    row = result(STATISTIC, silver("w1_clipping.jsonl"), Scope(start_us=0, end_us=end_ms * MS)).collect()[0]

    assert (row.shrinks, row.removals) == (2, 2)
    assert (row.expands, row.adds) == (expands, expands)
    assert row.coverage == 1.0
