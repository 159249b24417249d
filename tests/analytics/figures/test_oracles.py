"""Statistics against independent oracles: counted ticks, changed inputs, and sums that must agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from generated_histories import FIRST_TICK, GENERATED, WINDOW_TICKS, generated
from pyspark.sql import DataFrame, functions as F
from tick_oracle import TICK_US, Buckets, Oracle, nearest_rank
from variants import BESIDE, LATER_US, MEASURED_SKEWS_S, RENAMED_BY, VARIANTS
from worked_histories import HISTORIES

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import QUALITY, result


@pytest.fixture
def histories(histories_with_variants: Any) -> Any:
    """The worked histories, their variants and the generated ones."""
    return histories_with_variants


@pytest.fixture(scope="module")
def oracles() -> list[Buckets]:
    """The oracle's counts of each generated history."""
    return [Oracle(h.control, h.looks, h.starts, WINDOW_TICKS).run(FIRST_TICK) for h in generated(GENERATED)]


def _compare(histories: Any, oracles: list[Buckets], stat: str, expected: Any, reported: Any) -> None:
    """Both sides of every history at once, so that a failure shows which ones differ."""
    ours = {n: expected(buckets) for n, buckets in enumerate(oracles)}
    theirs = {n: reported(histories.rows(stat, f"generated:{n}")) for n in ours}
    assert theirs == ours


def _shares(values: list[int]) -> tuple[Any, ...]:
    """Sum, percentiles, maximum and covered ticks of values by tick."""
    return (
        sum(values) if values else None,
        *(nearest_rank(values, p) for p in (50, 95, 99)),
        max(values, default=None),
        len(values),
    )


def _weighted(row: Any) -> tuple[Any, ...]:
    ticks = round(row.coverage * WINDOW_TICKS)
    total = None if row.mean_records is None else round(row.mean_records * ticks, 6)
    return (total, row.p50_records, row.p95_records, row.p99_records, row.max_records, ticks)


def test_the_histories_are_worth_comparing(oracles: list[Buckets]) -> None:
    """The histories contain rejoins, flaps, zombies, times without a leader and unknown times."""
    assert sum(len(lengths) for b in oracles for lengths in b.rejoins.values()) > 10
    assert sum(sum(b.flaps.values()) for b in oracles) > 10
    assert sum(b.zombies for b in oracles) > 3
    assert sum(b.states["leaderless"] > 0 for b in oracles) > 5
    assert sum(b.known < WINDOW_TICKS for b in oracles) > 10
    assert sum(bool(b.lags) for b in oracles) > 20


def test_s01(histories: Any, oracles: list[Buckets]) -> None:
    """The HW lag agrees: integral, percentiles, maximum, coverage, zombies."""
    _compare(histories, oracles, "s01", lambda b: [_shares(b.lags)], lambda rows: [_weighted(row) for row in rows])


def test_s02(histories: Any, oracles: list[Buckets]) -> None:
    """The lag of each replica agrees by its expected role."""
    _compare(
        histories,
        oracles,
        "s02",
        lambda b: {key: _shares(values) for key, values in b.follower_lags.items()},
        lambda rows: {
            (row.replica_id, row.expected_state): _weighted(row) for row in rows if row.replica_id is not None
        },
    )


def test_s05(histories: Any, oracles: list[Buckets]) -> None:
    """The records acknowledged above the HW agree, and for how long there were any."""
    _compare(
        histories,
        oracles,
        "s05",
        lambda b: [(*_shares(b.at_risk), sum(v > 0 for v in b.at_risk) * TICK_US if b.at_risk else None)],
        lambda rows: [(*_weighted(row), row.at_risk_us) for row in rows],
    )


def test_s08(histories: Any, oracles: list[Buckets]) -> None:
    """Shrinks, expands, removals and adds agree; null where nothing at all was known."""

    def expected(b: Buckets) -> list[int | None]:
        reported = [b.changes[name] for name in ("shrinks", "expands", "removals", "adds")]
        return [count if b.known or any(reported) else None for count in reported]

    _compare(
        histories,
        oracles,
        "s08",
        expected,
        lambda rows: [value for row in rows for value in (row.shrinks, row.expands, row.removals, row.adds)],
    )


def test_s10(histories: Any, oracles: list[Buckets]) -> None:
    """The time in each state agrees, and for how long the state was known."""
    names = ("full", "above_min", "at_min", "under_min", "leaderless")
    _compare(
        histories,
        oracles,
        "s10",
        lambda b: [b.known, *((b.states[name] * TICK_US if b.known else None) for name in names)],
        lambda rows: [
            value
            for row in rows
            for value in (round(row.coverage * WINDOW_TICKS), *(row[f"{name}_us"] for name in names))
        ],
    )


def test_s11(histories: Any, oracles: list[Buckets]) -> None:
    """The time without writes and without reads agrees, and the gaps of activations."""
    _compare(
        histories,
        oracles,
        "s11",
        lambda b: (
            (b.states["under_min"] + b.states["leaderless"]) * TICK_US if b.known else None,
            b.states["leaderless"] * TICK_US if b.known else None,
            b.activation * TICK_US if b.known else None,
        ),
        lambda rows: (rows[0].write_unavailable_us, rows[0].read_unavailable_us, rows[0].activation_gap_us),
    )


def test_s12(histories: Any, oracles: list[Buckets]) -> None:
    """Rejoins agree, censored ones, time outside, and their lengths."""

    def expected(b: Buckets) -> dict[int, tuple[Any, ...]]:
        lengths = {replica: [ticks * TICK_US for ticks in b.rejoins.get(replica, [])] for replica in b.out}
        return {
            replica: (
                len(lengths[replica]),
                b.censored[replica],
                ticks * TICK_US,
                nearest_rank(lengths[replica], 50),
                max(lengths[replica], default=None),
            )
            for replica, ticks in b.out.items()
        }

    _compare(
        histories,
        oracles,
        "s12",
        expected,
        lambda rows: {
            row.replica_id: (row.rejoins, row.censored, row.out_us, row.p50_us, row.max_us)
            for row in rows
            if row.replica_id is not None
        },
    )


def test_s15(histories: Any, oracles: list[Buckets]) -> None:
    """Removals and flaps of each replica agree."""
    _compare(
        histories,
        oracles,
        "s15",
        lambda b: {replica: (count, b.flaps[replica]) for replica, count in b.removals.items()},
        lambda rows: {row.replica_id: (row.removals, row.flaps) for row in rows if row.replica_id is not None},
    )


# Changes that must not affect a statistic do not (`variants.py` lists how the histories are varied).


STORIES = sorted(path.stem for path in HISTORIES.glob("*.jsonl"))
TRANSITIONS_ONLY = sorted(stat for stat, statistic in ALL.items() if not statistic.reads_samples)
NODE_MAPS = ("blockers", "waited_for", "queued_for")
NODE_COLUMNS = ("replica_id", "leader_id", "top_node", "top_leader")
OF_GROUPS = [stat for stat, statistic in ALL.items() if statistic.of_groups]
_BOOKKEEPING = ("cluster_id", "input_manifest_hash", *QUALITY)


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
        # A rebalance waits for a member, which has a name.
        maps = {n: row[n] for n in NODE_MAPS if row.get(n) and stat != "s23"}
        return row | nodes | {name: {node + RENAMED_BY: n for node, n in by.items()} for name, by in maps.items()}

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


# Sums that must agree do agree, in every history.


WINDOW_US = 60_000_000


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
