"""S10: time in each state of the ISR."""

from __future__ import annotations

from collections.abc import Callable

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import result
from strandline_analytics.stats.s10_isr_time import STATISTIC

MS = 1_000


def test_w1_is_clipped_at_the_end_of_the_window(silver: Callable[[str], Silver]) -> None:
    """What runs past the window counts up to its end, and what began before it from its start."""
    row = result(STATISTIC, silver("w1_clipping.jsonl"), Scope(start_us=0, end_us=60_000 * MS)).collect()[0]

    assert row.full_us == 10_000 * MS
    assert row.under_replicated_us == 50_000 * MS
    assert row.at_min_us == 35_000 * MS
    assert row.under_min_us == 15_000 * MS
    assert row.leaderless_us == 0
    assert row.coverage == 1.0


def test_hours_add_up_to_the_whole(silver: Callable[[str], Silver]) -> None:
    """The sum over the steps of a window is the value of the window."""
    tables = silver("w1_clipping.jsonl")
    whole = result(STATISTIC, tables, Scope(start_us=0, end_us=60_000 * MS)).collect()[0]
    steps = result(STATISTIC, tables, Scope(start_us=0, end_us=60_000 * MS, step_us=7_000 * MS)).collect()

    assert len(steps) == 9
    for value in STATISTIC.values:
        assert sum(step[value.name] for step in steps) == whole[value.name]
