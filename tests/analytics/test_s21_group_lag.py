"""S21: lag of consumer groups in records."""

from __future__ import annotations

from typing import Any

import pytest

from strandline_analytics.scope import Grouping

S = 1_000_000


def test_each_value_weighs_as_long_as_it_held(histories: Any) -> None:
    """The lag changes with the HW, also between two looks, and with what is committed; silence is unknown."""
    row = histories.rows("s21", "group_lag")[1]

    assert (row.partition, row.group_id) == (0, "orders")
    assert row.mean_records == pytest.approx(1140 / 55, rel=1e-12)
    assert (row.p50_records, row.p95_records, row.p99_records, row.max_records) == (0, 80, 80, 80)
    assert (row.behind_us, row.ahead_us) == (20 * S, 0)
    assert row.coverage == pytest.approx(55 / 60, rel=1e-12)


def test_groups_of_one_partition_are_told_apart(histories: Any) -> None:
    """A second group has figures of its own, from its first report on."""
    row = histories.rows("s21", "group_lag")[0]

    assert (row.group_id, row.mean_records, row.max_records) == ("audit", 140.0, 160)
    assert row.coverage == pytest.approx(50 / 60, rel=1e-12)


def test_an_offset_above_all_reported_hws_is_in_no_figure(histories: Any) -> None:
    """5 s in which the report of the HW was missing are counted; a forgotten offset has no lag, not one of 0."""
    row = histories.rows("s21", "group_lag")[3]

    assert (row.partition, row.group_id) == (1, "orders")
    assert row.mean_records == pytest.approx(100 / 35, rel=1e-12)
    assert (row.max_records, row.behind_us, row.ahead_us) == (5, 20 * S, 5 * S)
    assert row.coverage == pytest.approx(40 / 60, rel=1e-12)


def test_a_group_that_is_silent_is_believed_for_three_minutes(histories: Any) -> None:
    """A coordinator reports every offset once a minute; after three without a report nothing is known."""
    row = histories.rows("s21", "group_lag")[2]

    assert (row.group_id, row.max_records, row.behind_us) == ("batch", 20, 10 * S)
    assert row.mean_records == pytest.approx(200 / 30, rel=1e-12)
    assert row.coverage == 0.5


def test_partitions_of_a_cluster_are_added_up(histories: Any) -> None:
    """By cluster a group has one row, weighted by the time of all its partitions."""
    rows = histories.rows("s21", "group_lag", grouping=Grouping.CLUSTER)

    assert [row.group_id for row in rows] == ["audit", "batch", "orders"]
    assert rows[2].mean_records == pytest.approx(1240 / 90, rel=1e-12)
    assert rows[2].coverage == pytest.approx(95 / 120, rel=1e-12)


def test_without_a_group_nothing_is_said(histories: Any) -> None:
    """A partition that no group reads has a row, and no group and no lag in it."""
    row = histories.row("s21", "lag")

    assert (row.group_id, row.mean_records, row.behind_us, row.coverage) == (None, None, None, 0.0)


def test_what_a_deposed_coordinator_says_of_an_offset_is_not_believed(histories: Any) -> None:
    """Its row is later than the one of the next coordinator, and in a lower epoch."""
    row = histories.rows("s21", "deposed_commits")[0]

    assert (row.group_id, row.mean_records, row.max_records) == ("orders", 2500 / 60, 100)
    assert row.behind_us == 40 * S
