"""A percentile is a value that was measured, by nearest rank."""

from __future__ import annotations

import pytest
from tests.bench.percentiles import latencies_ms, percentile


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [(1, 50, 1), (1, 99.9, 1), (2, 50, 1), (100, 99, 99), (1_000, 99.9, 999), (1_001, 99.9, 1_000), (999, 99.9, 999)],
)
def test_the_nearest_rank_counts(count: int, percent: float, expected: int) -> None:
    """The smallest value that at least so many percent of all values do not exceed."""
    assert percentile(range(1, count + 1), percent) == expected


def test_latencies_are_sorted_first() -> None:
    """Seconds in any order become ms."""
    assert latencies_ms([0.003, 0.001, 0.002]) == {"p50_ms": 2.0, "p99_ms": 3.0, "p999_ms": 3.0}


def test_nothing_measured_has_no_percentile() -> None:
    """An empty measurement is an error, not a zero."""
    with pytest.raises(ValueError, match="no value"):
        percentile([], 50)
