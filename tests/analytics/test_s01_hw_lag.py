"""S1: HW lag in records."""

from __future__ import annotations

from typing import Any

import pytest


def test_each_value_weighs_as_long_as_it_held(histories: Any) -> None:
    """Mean, percentiles and maximum are over time, and time without a sample is unknown, not 0."""
    row = histories.row("s01", "lag")

    assert row.mean_records == pytest.approx(700 / 45, rel=1e-12)
    assert (row.p50_records, row.p95_records, row.p99_records, row.max_records) == (10, 40, 40, 40)
    assert row.coverage == 0.75
    assert row.n_negative == 0


def test_a_deposed_leader_is_not_believed(histories: Any) -> None:
    """A sample ends with its term, a zombie's samples are counted without effect, the gap at the change is unknown."""
    row = histories.row("s01", "zombies")

    assert row.mean_records == pytest.approx(110 / 59, rel=1e-12)
    assert (row.p50_records, row.p95_records, row.max_records) == (2, 5, 5)
    assert row.coverage == pytest.approx(59 / 60, rel=1e-12)
    assert row.n_zombie == 1


def test_without_a_look_nothing_is_said(histories: Any) -> None:
    """Without data the value is null, not a lag of 0."""
    row = histories.row("s01", "w1_clipping")

    assert (row.mean_records, row.max_records, row.n_negative, row.coverage) == (None, None, None, 0.0)


def test_one_leader_is_believed_at_a_time(histories: Any) -> None:
    """The first event of a later leader ends the samples of an earlier one, also if the change was not exported."""
    lost, restarted = histories.rows("s01", "lost_change")

    assert (lost.coverage, restarted.coverage) == (pytest.approx(59 / 60, rel=1e-12), 1.0)
    assert (lost.mean_records, restarted.mean_records) == (pytest.approx(235 / 59, rel=1e-12), 4.0)
    assert (lost.max_records, lost.n_zombie) == (5, 1)
