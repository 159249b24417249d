"""Sums that must agree do agree, in every history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from variants import VARIANTS

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

WINDOW_US = 60_000_000


@pytest.fixture
def histories(histories_with_variants: Any) -> Any:
    """The worked histories, their variants and the generated ones."""
    return histories_with_variants


def _every_row(histories: Any, stat: str) -> list[Any]:
    histories.rows(stat, "lag")
    return [row for cluster in sorted(histories.clusters) for row in histories.rows(stat, cluster)]


def test_the_states_of_a_partition_fill_what_is_known(histories: Any) -> None:
    """Leaderless, under, at and above the minimum exclude each other, and with the unknown time fill the window."""
    rows = _every_row(histories, "s10")
    known = [row for row in rows if row.coverage > 0]

    assert known
    for row in known:
        spent = row.leaderless_us + row.under_min_us + row.at_min_us + row.above_min_us
        assert spent == round(row.coverage * WINDOW_US)
        assert row.full_us + row.under_replicated_us == spent
        assert row.under_replicated_us - row.under_replicated_led_us == row.leaderless_us


def test_unavailability_is_made_of_states(histories: Any) -> None:
    """Writes are refused under the minimum and without a leader, reads only without a leader."""
    for states, outage in zip(_every_row(histories, "s10"), _every_row(histories, "s11"), strict=True):
        if states.coverage > 0:
            assert outage.write_unavailable_us == states.under_min_us + states.leaderless_us
            assert outage.read_unavailable_us == states.leaderless_us


def test_nothing_covers_more_than_the_window(histories: Any) -> None:
    """Holds of samples never overlap: the known time is at most the window."""
    for stat in ("s01", "s03", "s06", "s10"):
        assert all(0.0 <= row.coverage <= 1.0 for row in _every_row(histories, stat))


def test_removals_are_the_same_to_everybody(histories: Any) -> None:
    """Statistics that count removals in different ways get the same number."""
    total = {
        stat: sum(row.removals or 0 for row in _every_row(histories, stat)) for stat in ("s08", "s09", "s13", "s15")
    }

    assert len(set(total.values())) == 1, total


def test_a_member_is_never_below_the_hw(histories: Any) -> None:
    """Only the history that breaks the rule on purpose, in each of its forms within this minute, has a member below."""
    wrong = {row.cluster_id for row in _every_row(histories, "s06") if row.n_below_hw}

    reported = {"alone", *(f"{variant}:alone" for variant in VARIANTS if variant != "later")}
    assert {cluster for cluster in wrong if not cluster.startswith("generated:")} == reported


def test_more_than_everything_is_never_known(histories: Any) -> None:
    """A coverage above 1 fails the query and names the statistic."""

    def too_much(silver: Silver, scope: Scope) -> DataFrame:
        return ALL["s10"].compute(silver, scope).withColumn("known_us", F.lit(120_000_000))

    wrong = replace(ALL["s10"], compute=too_much)
    asked = Scope(start_us=0, end_us=60_000_000)

    with pytest.raises(Exception, match=r"s10: coverage is 2\.0"):
        result(wrong, histories.tables, asked).collect()
