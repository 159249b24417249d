"""Changes that must not affect a statistic do not (`variants.py` lists how the histories are varied)."""

from __future__ import annotations

from typing import Any

import pytest
from variants import BESIDE, LATER_US, MEASURED_SKEWS_S, RENAMED_BY
from worked_histories import HISTORIES

from strandline_analytics.silver.quality import QUALITY
from strandline_analytics.stats import ALL

STORIES = sorted(path.stem for path in HISTORIES.glob("*.jsonl"))
TRANSITIONS_ONLY = sorted(stat for stat, statistic in ALL.items() if not statistic.reads_samples)
NODE_COLUMNS = ("replica_id", "leader_id", "top_node", "top_leader")
OF_GROUPS = [stat for stat, statistic in ALL.items() if statistic.of_groups]
_BOOKKEEPING = ("cluster_id", "input_manifest_hash", *QUALITY)


@pytest.fixture
def histories(histories_with_variants: Any) -> Any:
    """The worked histories, their variants and the generated ones."""
    return histories_with_variants


def _plain(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.asDict().items() if name not in _BOOKKEEPING}


def _original(histories: Any, stat: str, story: str) -> list[dict[str, Any]]:
    return [_plain(row) for row in histories.rows(stat, story)]


@pytest.mark.parametrize("stat", ALL)
def test_the_order_of_rows_does_not_matter(histories: Any, stat: str) -> None:
    """The result does not depend on the order in which files are read."""
    reported = {story: [_plain(row) for row in histories.rows(stat, f"shuffled:{story}")] for story in STORIES}

    assert reported == {story: _original(histories, stat, story) for story in STORIES}


@pytest.mark.parametrize("stat", ALL)
def test_a_row_that_came_twice_counts_once(histories: Any, stat: str) -> None:
    """A row that occurs twice changes only the count of duplicates."""
    reported = {story: [_plain(row) for row in histories.rows(stat, f"doubled:{story}")] for story in STORIES}

    assert reported == {story: _original(histories, stat, story) for story in STORIES}
    assert sum(row.n_duplicate for story in STORIES for row in histories.rows(stat, f"doubled:{story}")) > 0


@pytest.mark.parametrize("stat", ALL)
def test_the_numbers_of_nodes_do_not_matter(histories: Any, stat: str) -> None:
    """Other node ids give the same figures under those ids."""

    def renamed(row: dict[str, Any]) -> dict[str, Any]:
        nodes = {n: row[n] + RENAMED_BY for n in NODE_COLUMNS if row.get(n) is not None}
        blockers = row.get("blockers")
        held_up = {"blockers": {node + RENAMED_BY: n for node, n in blockers.items()}} if blockers else {}
        return row | nodes | held_up

    reported = {story: [_plain(row) for row in histories.rows(stat, f"renamed:{story}")] for story in STORIES}

    assert reported == {story: [renamed(row) for row in _original(histories, stat, story)] for story in STORIES}


@pytest.mark.parametrize("stat", [stat for stat, statistic in ALL.items() if not statistic.only_cluster])
def test_another_partition_does_not_matter(histories: Any, stat: str) -> None:
    """Events of one partition are not part of another's result."""
    reported = {
        story: [_plain(row) for row in histories.rows(stat, f"beside:{story}") if row.partition != BESIDE]
        for story in STORIES
    }

    assert reported == {story: _original(histories, stat, story) for story in STORIES}


@pytest.mark.parametrize("stat", [stat for stat in ALL if stat not in OF_GROUPS])
def test_events_of_groups_do_not_matter_to_partitions(histories: Any, stat: str) -> None:
    """What coordinators report of a partition changes nothing about its leader, its ISR and its HW."""
    reported = {story: [_plain(row) for row in histories.rows(stat, f"groups:{story}")] for story in STORIES}

    assert reported == {story: _original(histories, stat, story) for story in STORIES}


def test_events_of_groups_are_there(histories: Any) -> None:
    """The group that is added has a lag where the HW is known."""
    assert "g" in {row.group_id for row in histories.rows("s21", "groups:lag")}


@pytest.mark.parametrize("stat", ALL)
def test_a_measured_skew_of_a_nodes_clock_does_not_matter(histories: Any, stat: str) -> None:
    """The controller has measured the offset of node 1's clock, so no figure depends on it."""
    reported = {
        (skew_s, story): [_plain(row) for row in histories.rows(stat, f"measured {skew_s} s:{story}")]
        for skew_s in (0, *MEASURED_SKEWS_S)
        for story in STORIES
    }

    assert reported == {(skew_s, story): reported[0, story] for skew_s, story in reported}


@pytest.mark.parametrize("stat", ["s08", "s10", "s15", "s16", "s17"])
def test_a_nodes_clock_does_not_matter_to_what_the_controller_decided(histories: Any, stat: str) -> None:
    """Statistics by the controller's clock alone do not change if node 1's clock is 7 s ahead."""
    reported = {story: [_plain(row) for row in histories.rows(stat, f"skewed:{story}")] for story in STORIES}

    assert reported == {story: _original(histories, stat, story) for story in STORIES}


def test_a_nodes_clock_does_not_matter_to_its_own_durations(histories: Any) -> None:
    """Latencies of proposals are by one monotonic clock."""
    ours, skewed = (histories.row("s14", f"{variant}alter_partition") for variant in ("", "skewed:"))

    assert (skewed.p50_us, skewed.p95_us, skewed.max_us) == (ours.p50_us, ours.p95_us, ours.max_us)


@pytest.mark.parametrize("stat", TRANSITIONS_ONLY)
def test_missing_samples_do_not_matter_to_transitions(histories: Any, stat: str) -> None:
    """Half of the samples are missing, and nothing that is computed from transitions changes."""
    reported = {story: [_plain(row) for row in histories.rows(stat, f"thinned:{story}")] for story in STORIES}

    assert reported == {story: _original(histories, stat, story) for story in STORIES}


def test_missing_samples_cost_coverage(histories: Any) -> None:
    """Fewer samples cover less time, never more, and some statistic shows it."""
    pairs = [
        (thin.coverage, full.coverage)
        for story in STORIES
        for thin, full in zip(histories.rows("s01", f"thinned:{story}"), histories.rows("s01", story), strict=True)
    ]

    assert all(thin <= full for thin, full in pairs)
    assert any(thin < full for thin, full in pairs)


@pytest.mark.parametrize("stat", ["s01", "s10", "s12", "s14", "s18"])
def test_the_time_of_day_does_not_matter(histories: Any, stat: str) -> None:
    """All clocks and the window an hour later give the same figures."""
    hour_ms = LATER_US // 1_000
    moved = {"window_start": LATER_US, "window_end": 60_000_000 + LATER_US}
    reported = {
        story: [
            _plain(row) for row in histories.rows(stat, f"later:{story}", start_ms=hour_ms, end_ms=hour_ms + 60_000)
        ]
        for story in STORIES
    }

    assert reported == {story: [row | moved for row in _original(histories, stat, story)] for story in STORIES}


@pytest.mark.parametrize("stat", ["s08", "s11", "s16"])
def test_windows_side_by_side_add_up(histories: Any, stat: str) -> None:
    """The sum over four windows is the value of the whole, for every count and every time."""
    names = [value.name for value in ALL[stat].values]
    for story in STORIES:
        parts: dict[tuple[str, int], dict[str, int]] = {}
        for row in histories.rows(stat, story, step_ms=15_000):
            sums = parts.setdefault((row.topic_id, row.partition), dict.fromkeys(names, 0))
            parts[row.topic_id, row.partition] = {name: sums[name] + (row[name] or 0) for name in names}
        whole = {
            (row.topic_id, row.partition): {name: row[name] or 0 for name in names}
            for row in histories.rows(stat, story)
        }
        assert parts == whole
