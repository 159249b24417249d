"""Spans of time: how much of an hour is present, and what a report contains of its window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline_analytics.jobs.coverage import GRACE_US, HourState, hours_of, require
from strandline_analytics.report.gather import as_of
from strandline_analytics.scope import HOUR_US, Scope
from strandline_analytics.sources.census import HourTally
from strandline_analytics.sources.trouble import Incomplete, TooLong
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

LATER_US = 100 * HOUR_US


def tally(hour: int, first: int, last: int, **more: int | bool) -> HourTally:
    """A complete tally of node 1, with events from the first to the last second of the hour."""
    made = HourTally(
        cluster_id="c", node_id=1, incarnation=1, hour=hour, events=last - first + 1, copies=0, first_seq=first,
        last_seq=last, first_us=hour * HOUR_US, last_us=(hour + 1) * HOUR_US - 1,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def test_an_hour_is_closed_when_its_numbers_go_on_after_it() -> None:
    """With events after the hour without a hole, or a reported end, both hours are closed and complete."""
    hours = hours_of([tally(5, 1, 10), tally(6, 11, 20, is_final=True)], now_us=LATER_US)

    assert [(hour.state, hour.coverage) for hour in hours] == [(HourState.CLOSED, 1.0), (HourState.CLOSED, 1.0)]


@pytest.mark.parametrize(("late_us", "state"), [(-1, HourState.OPEN), (0, HourState.CLOSED_INCOMPLETE)])
def test_an_hour_is_open_until_its_grace_is_over(late_us: int, state: HourState) -> None:
    """An hour stays open until its grace is over, because events of a silent emitter may still arrive."""
    hours = hours_of([tally(5, 1, 10)], now_us=6 * HOUR_US + GRACE_US + late_us)

    assert [hour.state for hour in hours] == [state]


def test_a_hole_counts_in_the_hours_it_may_belong_to() -> None:
    """A missing hour between two existing ones has the numbers between them, as may its neighbours."""
    hours = hours_of([tally(5, 1, 10), tally(7, 31, 40, is_final=True)], now_us=LATER_US)

    assert [(hour.events, hour.missing) for hour in hours] == [(10, 20), (0, 20), (10, 20)]
    assert {hour.state for hour in hours} == {HourState.CLOSED_INCOMPLETE}
    with pytest.raises(Incomplete, match="1970-01-01T06Z of cluster c is closed_incomplete"):
        require(hours, 0.99)


def test_hours_that_overlap_since_a_clock_went_back_have_no_hole() -> None:
    """Numbers 8 to 12 are in the wrong hour, but all are there."""
    hours = hours_of([tally(5, 1, 12, events=9), tally(6, 8, 20, events=11, is_final=True)], now_us=LATER_US)

    assert [hour.missing for hour in hours] == [0, 0]


def test_numbers_that_two_hours_count_are_no_hole_of_less_than_nothing() -> None:
    """When two hours contain the same ten events, nothing is missing, and no hour has more than all of its events."""
    hours = hours_of([tally(5, 1, 10), tally(6, 1, 10, is_final=True)], now_us=LATER_US)

    assert [(hour.missing, hour.coverage) for hour in hours] == [(0, 1.0), (0, 1.0)]


def test_numbers_that_only_a_heartbeat_reported_are_missing() -> None:
    """The end of a lost incarnation is known from its last heartbeat."""
    (hour,) = hours_of([tally(5, 1, 10, reported_last_seq=12, is_final=True)], now_us=LATER_US)

    assert (hour.missing, hour.state) == (2, HourState.CLOSED_INCOMPLETE)


def test_an_hour_that_nobody_was_heard_in_is_empty() -> None:
    """A window beyond the data has hours, and they are not complete."""
    hours = hours_of([tally(5, 1, 10, is_final=True)], now_us=LATER_US, start_us=5 * HOUR_US, end_us=7 * HOUR_US)

    assert [hour.state for hour in hours] == [HourState.CLOSED, HourState.EMPTY]
    with pytest.raises(Incomplete):
        require(hours, 0.5)


def test_an_event_of_1970_is_refused_with_who_reported_it() -> None:
    """An event of 1970 is rejected with its origin: it would make half a million hours, unless a window is given."""
    early = tally(0, 1, 3)
    late = tally(498_662, 4, 9)

    with pytest.raises(TooLong, match=r"3 of node 1 in 1970-01-01T00Z.*498,662 hours.*--from and --to"):
        hours_of([early, late], now_us=LATER_US)
    assert hours_of([late], now_us=LATER_US, start_us=498_662 * HOUR_US)


# A report contains only what was known at the end of its window.


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
