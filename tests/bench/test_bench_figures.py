"""How figures of the bench are obtained and judged: bars, percentiles, gaps, repeated measurements, absent parties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import parties
import pytest
from bars import BARS, KAFKA, MET, MISSED, NATS, OURS
from bench import Bench
from child import output_of
from failover_gap import Acknowledgement, gap_ms
from metadata_gate import known_row
from parties import PartyAbsent, Servers
from plan import SMOKE
from transaction_cost import by_turns


def throughput(speeds: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """Rounds of parties with these speeds, of 64 KiB and window 5."""
    same = {"p50_ms": 3.0, "p999_ms": 5.0, "cpu_ms_per_mb": {"leader": 1.0}, "rss_mib": {"leader": 80.0, "client": 1e6}}
    return [
        {"round": number, "shape": "64 KiB, window 5", "party": name, "figures": {"megabytes_per_s": speed, **same}}
        for name, each in speeds.items()
        for number, speed in enumerate(each)
    ]


def bar_of(results: Mapping[str, Any], what: str) -> list[object]:
    """Obtained, with the range, and the verdict of the first bar of that name."""
    return next(bar.line(results)[3:] for bar in BARS if bar.what == what)


def test_the_median_of_the_ratios_decides() -> None:
    """Three of five rounds at or above the bar meet it, whatever the sums of all rounds are."""
    results = {"throughput": throughput({OURS: [60, 70, 60, 10, 20], NATS: [50, 50, 50, 100, 100]})}

    assert bar_of(results, f"MB/s of {OURS} to {NATS}") == ["1.20 [0.10-1.40]", MET]


def test_a_dropped_round_pairs_with_no_other() -> None:
    """A round that only one side has gives no ratio, and fewer rounds than wanted are remarked."""
    rows = [row for row in throughput({OURS: [50, 60], NATS: [100, 100]}) if (row["round"], row["party"]) != (0, NATS)]

    verdict = f"{MISSED}, of fewer than 5 rounds"
    assert bar_of({"throughput": rows}, f"MB/s of {OURS} to {NATS}") == ["0.60 [0.60-0.60]", verdict]


def test_a_peer_that_was_not_there_is_no_success() -> None:
    """Bars without figures are listed as not measured."""
    assert {bar.line({})[-1] for bar in BARS} == {"not measured"}


def test_the_longest_gap_counts() -> None:
    """One gap of many above the limit misses its bar, though the median meets its own; a stop is no kill."""
    kills = {"fault": "kill", "session_timeout_ms": 9_000, "gaps_ms": [40.0] * 19 + [501.0]}
    stops = {**kills, "fault": "stop", "gaps_ms": [8_900.0]}

    assert bar_of({"failover": [stops, kills]}, "median gap, ms")[-1] == MET
    assert bar_of({"failover": [stops, kills]}, "longest gap, ms")[-1] == MISSED


@pytest.mark.parametrize(("gap_ms_", "verdict"), [(9_000, MET), (9_001, MISSED)])
def test_a_vanished_address_costs_the_session(gap_ms_: float, verdict: str) -> None:
    """The gap is judged by what it takes beyond its own session time-out."""
    results = {"failover": [{"fault": "vanish", "session_timeout_ms": 9_000, "gaps_ms": [gap_ms_] * 5}]}

    assert bar_of(results, "ms of the gap beyond the session of 9000 ms")[-1] == verdict


async def test_the_other_one_is_first_in_the_next_pair() -> None:
    """What the first of a pair finds warm or cold is shared fairly, and each figure is ascribed to its own."""
    order: list[float] = []

    async def measured(figure: float) -> float:
        order.append(figure)
        return figure

    found = await by_turns(3, lambda: measured(1.0), lambda: measured(2.0))

    assert order == [1.0, 2.0, 2.0, 1.0, 1.0, 2.0]
    assert found == [(1.0, 2.0)] * 3


def test_an_answer_that_was_on_its_way_ends_no_gap() -> None:
    """An answer of the dead leader that is read after the kill is not an answer of the next leader."""
    steady = [Acknowledgement(99.98 + n / 1_000, 99.981 + n / 1_000) for n in range(18)]
    on_its_way, resumed = Acknowledgement(99.999, 100.001), Acknowledgement(100.001, 100.050)

    assert round(gap_ms([*steady, on_its_way, resumed], 100.0), 3) == 52.0


@pytest.mark.parametrize(
    ("one", "is_met", "said"),
    [((10.5, 7), True, "first 0.20 s, last 0.50 s"), ((10.5, 6), False, "first 0.20 s, last 0.20 s, 1 never")],
)
def test_a_subscriber_that_never_knew_misses_the_gate(one: tuple[float, int], is_met: bool, said: str) -> None:
    """However soon all others knew."""
    row = known_row([(1, [(10.1, 5), (10.2, 7)]), (1, [one])], 10.0, 7)

    assert (row["is_met"], row["measured"]) == (is_met, said)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Means of a run without any server."""
    return Bench(replace(SMOKE, most_steal_percent=3.0), Servers(tmp_path, 0.0, print), tmp_path, print)


def stolen(*percents: float) -> Callable[[], dict[str, float]]:
    """Measurements during which the host took so much, one after the other."""
    left = list(percents)
    return lambda: {"steal_percent": left.pop(0)}


@pytest.mark.parametrize(
    ("percents", "kept", "repeated"), [([3.0], [3.0], 0), ([3.1, 0.5], [0.5], 1), ([4.0, 9.0, 0.0], [], 1)]
)
def test_a_disturbed_measurement_is_repeated_once(
    bench: Bench, percents: list[float], kept: list[float], repeated: int
) -> None:
    """Steal time at the limit is believed; a measurement that is disturbed twice is dropped by name."""
    rows = list(bench.row(stolen(*percents), round=3, party=NATS))

    assert [row["figures"]["steal_percent"] for row in rows] == kept
    assert (bench.repeated, bench.dropped) == (repeated, [] if kept else [f"round 3, {NATS}"])


def test_a_failed_measurement_is_a_note(bench: Bench) -> None:
    """It leaves no row and its last line of error; the next measurement has its row."""

    def fails() -> Mapping[str, Any]:
        output_of(["sh", "-c", "echo first >&2; echo the reason >&2; exit 3"], 10)
        return {}

    rows = [*bench.row(fails, round=0, party=NATS), *bench.row(stolen(0.0), round=1, party=NATS)]

    assert [row["round"] for row in rows] == [1]
    assert bench.notes == [f"round 0, {NATS} failed: the reason"]


@contextmanager
def cannot(_: Path, __: float) -> Iterator[object]:
    """A party that is not here."""
    raise PartyAbsent("javac not installed")
    yield None


def test_an_absent_party_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka without its packages is None for every measure, and its reason is kept; left out, it is named too."""
    monkeypatch.setattr(parties, "kafka_servers", cannot)
    with Servers(tmp_path, 180.0, print) as asked, Servers(tmp_path, 0.0, print) as not_asked:
        assert [asked.kafka, asked.kafka, not_asked.kafka] == [None] * 3
        assert asked.absent == {KAFKA: "javac not installed"}
        assert not_asked.absent == {KAFKA: "left out of this run"}
