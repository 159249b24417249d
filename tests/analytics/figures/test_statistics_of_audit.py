"""S29 on a worked history."""

from __future__ import annotations

from typing import Any

NO_WRITE = "client/* DENY WRITE topic LITERAL pay"


def test_refusals_are_counted_by_principal_and_rule(histories: Any) -> None:
    """A change is no refusal; what is of nobody in particular is counted as such, and a window without any has 0."""
    rows = histories.rows("s29", "refusals")
    counts = {(row.principal, row.rule): (row.refusals, row.methods) for row in rows}
    by_window = histories.rows("s29", "refusals", step_ms=20_000)

    assert counts == {
        ("client/x", None): (40, {"LeaderService/Fetch": 40}),
        ("client/x", NO_WRITE): (1, {"LeaderService/Produce": 1}),
        ("replica/2", "role"): (1, {"ControllerService/DeleteTopics": 1}),
        (None, None): (7, {}),
    }
    assert sorted((row.window_start // 1_000_000, row.refusals) for row in by_window) == [
        (0, 1),
        (0, 40),
        (20, 1),
        (40, 7),
    ]


def test_they_are_in_the_controllers_time(histories: Any) -> None:
    """Node 1 is 2 s ahead, so that what it wrote at 12 s was at 10 s; before, the count is 0 and of nobody."""
    rows = histories.rows("s29", "refusals", step_ms=10_000)
    counts = sorted((row.window_start // 1_000_000, row.refusals) for row in rows)

    assert counts == [(0, 0), (10, 1), (10, 40), (20, 0), (30, 1), (40, 0), (50, 7)]
