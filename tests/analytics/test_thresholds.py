"""Conditions on the rows of statistics: units, and unknown values."""

from __future__ import annotations

import pytest

from strandline_analytics.jobs.ask import Threshold


@pytest.mark.parametrize(
    ("text", "row", "holds"),
    [
        ("under_min_ms>0", {"under_min_us": 1}, True),
        ("under_min_ms>1", {"under_min_us": 1_000}, False),
        ("under_min_s >= 2", {"under_min_us": 2_000_000}, True),
        ("removals=3", {"removals": 3}, True),
        ("under_min_ms>0", {"under_min_us": None}, False),
    ],
)
def test_a_condition_is_asked_in_the_unit_of_its_name(text: str, row: dict[str, int | None], holds: bool) -> None:
    """`_ms` and `_s` name the same column as `_us`; an unknown value fulfils no condition."""
    assert Threshold.parse(text).holds(row) is holds


@pytest.mark.parametrize("text", ["", "under_min", "under min > 0", "x>y"])
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    """An invalid condition is rejected with a message that shows the valid forms."""
    with pytest.raises(ValueError, match="under_min_ms>0"):
        Threshold.parse(text)


def test_a_condition_may_name_its_statistic() -> None:
    """`s8.` and `s08.` mean the same statistic."""
    assert Threshold.parse("s8.removals>0").stat == Threshold.parse("s08.removals>0").stat == "s08"
