"""Bars, percentiles and repeated measurements: how a figure of the bench is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from by_turns import by_turns
from tests.bench.bars import AIOKAFKA, BARS, CLIENT_SYNCED, JAVA, KAFKA, NATS, NATS_SYNCED, OURS, SYNCED, bars_table
from tests.bench.percentiles import latencies_ms, percentile
from tests.bench.plan import SMOKE, Plan
from tests.bench.steady import BELIEVABLE_STEAL_PERCENT, Steady


def rows(shape: str, ours: list[float], theirs: list[float], party: str = OURS, peer: str = NATS) -> dict[str, Any]:
    """Rounds of throughput with these speeds."""
    found = []
    for name, speeds in ((party, ours), (peer, theirs)):
        for number, speed in enumerate(speeds):
            figures = {
                "megabytes_per_s": speed,
                "p50_ms": 1.0,
                "cpu_ms_per_mb": {"leader": 1.0},
                "rss_mib": {"leader": speed, "follower0": 1.0, "client": 1e6},
            }
            found.append({"round": number, "shape": shape, "party": name, "figures": figures})
    return {"throughput": found}


def line_of(table: str, shape: str, peer: str, wanted: str) -> str:
    """The line of the bar against this peer."""
    return next(line for line in table.splitlines() if shape in line and f" to {peer} |" in line and wanted in line)


def gaps(fault: str, session_ms: int, gaps_ms: list[float]) -> dict[str, Any]:
    """One kind of fault with these gaps."""
    return {"failover": [{"fault": fault, "session_timeout_ms": session_ms, "gaps_ms": gaps_ms}]}


def test_the_median_of_the_ratios_decides() -> None:
    """Three of five rounds at or above the bar meet it, whatever the sums of all rounds are."""
    table = bars_table(rows("64 KiB, window 5", [50, 60, 50, 10, 20], [50, 50, 50, 100, 100]))

    assert line_of(table, "64 KiB, window 5", NATS, "at least 1 ").endswith("| 5 | 1.00 | 0.10-1.20 | met |")


def test_a_missed_bar_says_so() -> None:
    """A ratio below the bar is printed as missed, with what was obtained."""
    table = bars_table(rows("256 KiB, window 5", [110] * 5, [100] * 5))

    assert line_of(table, "256 KiB, window 5", NATS, "at least 1.2").endswith("| 5 | 1.10 | 1.10-1.10 | **missed** |")


@pytest.mark.parametrize(("speed", "verdict"), [(120, "met"), (119, "**missed**")])
def test_too_few_rounds_are_remarked(speed: float, verdict: str) -> None:
    """Fewer than five rounds are judged, and the verdict says so."""
    table = bars_table(rows("256 KiB, window 5", [speed] * 4, [100] * 4))

    line = line_of(table, "256 KiB, window 5", NATS, "at least 1.2")
    assert line.endswith(f"| {verdict}, of fewer than 5 rounds |")


def test_a_peer_that_was_not_there_is_no_success() -> None:
    """Bars without figures are listed as not measured."""
    table = bars_table({})

    assert table.count("| not measured |") == len(BARS)


def test_a_dropped_round_pairs_with_no_other() -> None:
    """A round that only one side has gives no ratio."""
    measured = rows("64 KiB, window 5", [50, 60], [100, 100])
    measured["throughput"] = [row for row in measured["throughput"] if (row["round"], row["party"]) != (0, NATS)]

    assert "| 1 | 0.60 | 0.60-0.60 | **missed**" in line_of(
        bars_table(measured), "64 KiB, window 5", NATS, "at least 1 "
    )


def test_fsync_has_the_peer_that_syncs() -> None:
    """Our fsync is compared with NATS `sync: always`, not with the NATS that does not sync."""
    table = bars_table(rows("64 KiB, window 5", [36] * 5, [24] * 5, SYNCED, NATS_SYNCED))

    assert line_of(table, "64 KiB, window 5", NATS_SYNCED, "at least 1.5").endswith("| 5 | 1.50 | 1.50-1.50 | met |")
    assert line_of(table, "64 KiB, window 5", NATS, "at least 1 ").endswith("| not measured |")


def test_memory_is_that_of_the_largest_server() -> None:
    """The client's memory is no replica's."""
    table = bars_table(rows("64 KiB, window 5", [90] * 5, [900] * 5, OURS, KAFKA))

    assert line_of(table, "64 KiB, window 5", KAFKA, "at most 0.15").endswith("| 0.10 | 0.10-0.10 | met |")


@pytest.mark.parametrize(("peer", "records_per_s", "verdict"), [(AIOKAFKA, 62, "met"), (JAVA, 95, "**missed**")])
def test_full_clients_are_compared_with_fsync(peer: str, records_per_s: float, verdict: str) -> None:
    """Our client against the cluster that syncs, divided by each of Kafka's clients."""
    speeds = {CLIENT_SYNCED: 100, peer: records_per_s}
    measured = [
        {"round": number, "client": name, "figures": {"records_per_s": speed}}
        for name, speed in speeds.items()
        for number in range(5)
    ]

    table = bars_table({"clients": measured})

    assert line_of(table, "full client", peer, "at least").endswith(f"| {verdict} |")


@pytest.mark.parametrize(("longest_ms", "verdict"), [(500, "met"), (501, "**missed**")])
def test_the_longest_gap_counts(longest_ms: float, verdict: str) -> None:
    """One gap of many above the limit misses the bar, though the median meets its own."""
    table = bars_table(gaps("kill", 9_000, [40.0] * 19 + [longest_ms]))
    median, longest = (line for line in table.splitlines() if "kill -9" in line)

    assert median.endswith("| met |")
    assert longest.endswith(f"| {verdict} |")


@pytest.mark.parametrize(("gap_ms", "verdict"), [(9_300, "met"), (9_301, "**missed**")])
def test_a_vanished_address_costs_the_session(gap_ms: float, verdict: str) -> None:
    """The gap is judged by what it takes beyond its own session time-out."""
    table = bars_table(gaps("vanish", 9_000, [gap_ms] * 5))
    default, short = (line for line in table.splitlines() if "vanished" in line)

    assert default.endswith(f"| {verdict} |")
    assert short.endswith("| not measured |")


def test_a_stop_is_no_kill() -> None:
    """Gaps of a process that stands still are judged by no bar of kill -9."""
    table = bars_table(gaps("stop", 9_000, [8_900.0]))

    assert table.count("| not measured |") == len(BARS)


def test_idle_cost_is_that_of_the_busiest_node() -> None:
    """The controller is no node, and fewer partitions are no evidence."""
    busy = {
        "round": 0,
        "partitions": 1_000,
        "figures": {"cpu_percent": {"controller": 5, "node-1": 0.5, "node-2": 1.1}},
    }
    few = {"round": 0, "partitions": 10, "figures": {"cpu_percent": {"node-1": 0.1}}}

    line = next(
        line
        for line in bars_table({"idle": [*(busy | {"round": number} for number in range(5)), few]}).splitlines()
        if "idle" in line
    )

    assert line.endswith("| 5 | 1.10 | 1.10-1.10 | **missed** |")


# A percentile is a value that was measured, by nearest rank.


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


# Measurements by turns: the order in which they are made, and whose each figure is.


async def test_the_other_one_is_first_in_the_next_pair() -> None:
    """What the first of a pair finds warm or cold is shared fairly, and each figure is ascribed to its own."""
    order: list[str] = []

    async def one() -> float:
        order.append("one")
        return 1.0

    async def other() -> float:
        order.append("other")
        return 2.0

    found = await by_turns(3, one, other)

    assert order == ["one", "other", "other", "one", "one", "other"]
    assert found == [(1.0, 2.0)] * 3


# A measurement that the host disturbed is repeated once, then dropped by name; a slow one is kept.


def measuring(*steal_percents: float) -> Callable[[], dict[str, float]]:
    """Measurements during which the host took so much, one after the other."""
    left = list(steal_percents)
    return lambda: {"steal_percent": left.pop(0)}


def test_a_quiet_measurement_is_taken_as_it_is() -> None:
    """Steal time at the limit is believed, and nothing is measured twice."""
    steady = Steady()

    assert steady.measured("one", measuring(BELIEVABLE_STEAL_PERCENT)) == {"steal_percent": BELIEVABLE_STEAL_PERCENT}
    assert (steady.repeated, steady.dropped) == (0, [])


def test_a_disturbed_measurement_is_repeated_once() -> None:
    """The repetition counts instead."""
    steady = Steady()

    assert steady.measured("one", measuring(3.1, 0.5)) == {"steal_percent": 0.5}
    assert (steady.repeated, steady.dropped) == (1, [])


def test_a_measurement_that_is_disturbed_twice_is_dropped() -> None:
    """There is no third try, and its name is kept."""
    steady = Steady()

    assert steady.measured("round 3, NATS", measuring(4.0, 9.0, 0.0)) is None
    assert (steady.repeated, steady.dropped) == (1, ["round 3, NATS"])


def test_only_a_smoke_run_keeps_what_a_busy_host_disturbed() -> None:
    """Its figures are judged by nothing, so a measure must not disappear because of steal time."""
    assert Steady(SMOKE.believable_steal_percent).measured("one", measuring(90.0)) == {"steal_percent": 90.0}
    assert Steady(Plan().believable_steal_percent).measured("one", measuring(90.0, 90.0)) is None
