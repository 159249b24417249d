"""How often a cluster is looked at."""

from __future__ import annotations

import pytest

from strandline_kafka.collector.pace import MOST_MS, Pace, usual_period_ms


@pytest.mark.parametrize(("partitions", "ms"), [(0, 500), (1_000, 500), (10_000, 5_000), (10_000_000, MOST_MS)])
def test_the_usual_period_grows_with_the_partitions(partitions: int, ms: int) -> None:
    """So many partitions a second are asked about, and no more."""
    assert usual_period_ms(partitions) == ms


def test_the_period_doubles_while_answers_are_slow_and_returns() -> None:
    """Longer than half the period doubles it; it halves as soon as answers fit the shorter one, to what was asked."""
    pace = Pace(500)
    steps = [(250, 500), (251, 1_000), (501, 2_000), (501, 2_000), (500, 1_000), (1, 500), (1, 500)]
    for longest_ms, period_ms in steps:
        pace.after(longest_ms)
        assert pace.period_ms == period_ms


def test_the_period_has_a_limit() -> None:
    """However slow a cluster is, it is looked at once a minute."""
    pace = Pace(40_000)
    pace.after(100_000)
    pace.after(100_000)
    assert pace.period_ms == MOST_MS
