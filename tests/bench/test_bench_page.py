"""The page of the bench: dates, commits, missed bars, measurements that fail, and absent parties."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import failover_faults
import pytest
import report
import servers
from bench import Bench
from child import output_of
from parties import NATS as NATS_ABSENT
from parties import PartyAbsent
from party_kafka import WARMED_GIB, check_space
from plan import KILL, SMOKE, STOP, VANISH, Plan
from servers import Servers
from tests.bench.bars import NATS, OURS
from tests.bench.plot import LABELS, RIGHT, WIDTH, place, shown, ticks
from tests.bench.results import put, read, write
from used_memory import UsedMemory

DOCS = Path(__file__).resolve().parents[2] / "docs"


ABOUT = {
    "date": "2026-11-24",
    "commit": "abc1234",
    "cpus": 2,
    "kernel": "Linux 6",
    "python": "3.11",
    "grpcio": "1.85",
    "nats": "nats-server: v2",
    "nice": 0,
    "rounds": 1,
    "warm_s": 1.0,
    "run_s": 3.0,
    "kafka_warm_s": 180.0,
    "load_before": 0.1,
    "load_after": 2.0,
    "complete": True,
    "repeated": 2,
    "dropped": ["round 4, 64 KiB, window 1, Kafka"],
    "absent": {"Kafka": "java not installed"},
    "notes": [],
}


def throughput(ours: float, theirs: float) -> list[dict[str, Any]]:
    """One round of two parties."""
    rows = []
    for party, speed in ((OURS, ours), (NATS, theirs)):
        figures = {
            "megabytes_per_s": speed,
            "requests": 1_000,
            "p50_ms": 3.0,
            "p99_ms": 4.0,
            "p999_ms": 5.0,
            "cpu_ms_per_mb": {"leader": 9.5, "follower0": 4.5, "follower1": 4.0, "client": 2.0},
            "rss_mib": {"leader": 80.0, "follower0": 70.0, "follower1": 70.0, "client": 50.0},
            "others_percent": 7.0,
        }
        rows.append({"round": 0, "shape": "64 KiB, window 5", "party": party, "figures": figures})
    return rows


def results_of(ours: float, theirs: float, **about: object) -> dict[str, Any]:
    """A run with one measure."""
    results: dict[str, Any] = {}
    put(results, "throughput", {**ABOUT, **about}, throughput(ours, theirs))
    return results


def test_each_measure_names_its_commit() -> None:
    """A measure that was repeated later has a commit of its own; the other keeps its."""
    results = results_of(100, 90)
    idle = [{"round": 0, "partitions": 1_000, "figures": {"cpu_percent": {"node-1": 0.8}, "rss_mib": {"node-1": 75}}}]
    put(results, "idle", {**ABOUT, "commit": "def5678"}, idle)

    before, after = report.page(results).split("## Idle cost")

    assert "at commit abc1234" in before and "def5678" not in before
    assert "at commit def5678" in after and "abc1234" not in after


def test_another_machine_is_said() -> None:
    """A measure that was obtained under other conditions than the newest says so, and one under the same does not."""
    results = results_of(100, 90, date="2026-11-20", nice=-10)
    idle = [{"round": 0, "partitions": 1_000, "figures": {"cpu_percent": {"node-1": 0.8}, "rss_mib": {"node-1": 75}}}]
    put(results, "idle", ABOUT, idle)

    page = report.page(results)

    assert "Measured 2026-11-20 at commit abc1234 on 2 CPUs" in page
    assert page.count("everybody at nice 0") == 1
    assert page.count("everybody at nice -10") == 1


def test_figures_of_a_smoke_run_judge_nothing() -> None:
    """One measure of a smoke run is enough for the page to say so, and to leave the bars out."""
    page = report.page(results_of(100, 90, smoke=True))

    assert "its figures mean nothing" in page
    assert "## Bars" not in page


def test_what_was_repeated_dropped_and_absent_is_said() -> None:
    """Steal time and absent parties are named beside the figures."""
    page = report.page(results_of(100, 90))

    assert "2 measurements repeated for steal time, 1 of them dropped" in page
    assert "dropped: round 4, 64 KiB, window 1, Kafka" in page
    assert "Kafka is absent: java not installed" in page
    assert "Kafka warmed" not in page
    assert "interrupted" not in page
    assert "**interrupted" in report.page(results_of(100, 90, complete=False))


def test_figures_from_before_are_shown_with_dashes() -> None:
    """The file of an older run has no p99.9 and one set of conditions, and is still a page."""
    results = json.loads((DOCS / "benchmarks.json").read_text())

    page = report.page(results)

    assert "## Failover: silence of acknowledgements per `kill -9` of the leader" in page
    assert f"Measured {results['about']['date']}" in page if "about" in results else "at commit" in page


def test_a_measure_without_rows_says_why() -> None:
    """What failed or could not be had is on the page, though there is no figure."""
    results: dict[str, Any] = {}
    put(results, "failover", {**ABOUT, "notes": ["vanish was not measured: root is needed"]}, [])

    page = report.page(results)

    assert "vanish was not measured: root is needed" in page
    assert "benchmark-failover.svg" not in page
    assert report.page({}) == report.HEAD


def test_one_measure_again_keeps_the_others(tmp_path: Path) -> None:
    """Conditions that an older file has once for all go to each of its measures, and its rows stay."""
    old = {"about": {"date": "2026-11-21"}, "throughput": throughput(1, 2), "failover": []}
    write(tmp_path, old)
    results = read(tmp_path)

    put(results, "idle", {"date": "2026-11-24"}, [{"partitions": 10}])
    write(tmp_path, results)

    kept = read(tmp_path)
    assert kept["parts"] == {"throughput": {"date": "2026-11-21"}, "idle": {"date": "2026-11-24"}}
    assert kept["throughput"] == old["throughput"]
    assert kept["idle"] == [{"partitions": 10}]


def test_nothing_measured_yet_is_no_error(tmp_path: Path) -> None:
    """A folder without results is an empty run."""
    assert read(tmp_path) == {}


def test_pictures_show_every_round() -> None:
    """One dot per round and party; the median is written beside them."""
    results = results_of(123.4, 90)
    gaps = {"fault": "kill", "session_timeout_ms": 9_000, "heartbeat_interval_ms": 2_000, "gaps_ms": [7.0, 30.0, 90.0]}
    put(results, "failover", ABOUT, [gaps])

    drawn = report.pictures(results)

    assert set(drawn) == {"benchmark-throughput.svg", "benchmark-failover.svg"}
    assert drawn["benchmark-throughput.svg"].count("<circle") == 2
    assert ">123.4<" in drawn["benchmark-throughput.svg"]
    assert drawn["benchmark-failover.svg"].count("<circle") == 3
    assert ">30<" in drawn["benchmark-failover.svg"]


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_scale_is_as_wide_as_its_panel(logarithmic: bool) -> None:
    """The lowest value is at the left end, the highest at the right end, and the others between."""
    ends = [place(value, 1.0, 100.0, logarithmic=logarithmic) for value in (1.0, 10.0, 100.0)]

    assert ends[0] == LABELS
    assert ends[2] == pytest.approx(WIDTH - RIGHT)
    assert (ends[1] - ends[0]) / (ends[2] - ends[0]) == pytest.approx(0.5 if logarithmic else 9 / 99)


def test_a_scale_holds_every_value() -> None:
    """From zero to the highest value, or whole decades around all of them, even around a single one."""
    assert ticks([5.0, 60.0], logarithmic=False) == [0.0, 60.0]
    assert ticks([7.0, 950.0], logarithmic=True) == [1.0, 10.0, 100.0, 1_000.0]
    assert ticks([10.0], logarithmic=True) == [10.0, 100.0]


@pytest.mark.parametrize(("value", "text"), [(5.4, "5.4"), (123.44, "123.4"), (83_610.0, "83,610"), (2_027.6, "2,028")])
def test_numbers_in_pictures_have_no_exponent(value: float, text: str) -> None:
    """Thousands are separated, small figures keep four digits."""
    assert shown(value) == text


def test_the_gain_of_workers_is_that_of_rounds_that_have_both() -> None:
    """Ratios are taken round by round; a round that lost one of its measurements has none."""

    def row(number: int, workers: int, speed: float) -> dict[str, Any]:
        cores = {f"worker-{n}": 0.5 for n in range(workers)}
        figures = {"megabytes_per_s": speed, "p50_ms": 2.0, "workers_cores": cores, "clients_cores": 0.4}
        return {"round": number, "workers": workers, "figures": figures}

    results: dict[str, Any] = {}
    put(
        results,
        "workers",
        ABOUT,
        [row(0, 1, 100.0), row(0, 2, 150.0), row(1, 1, 100.0), row(1, 2, 130.0), row(2, 2, 1.0)],
    )
    page = report.page(results)

    assert "in the same round: 1.40 [1.30-1.50]." in page
    assert "| 1 | 100.0 [100.0-100.0] | 2.00 [2.00-2.00] | 0.50 [0.50-0.50] | 200 [200-200] | 0.40" in page


# A measurement that fails is named on the page, and the others go on.


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Means of a run without any server."""
    return Bench(SMOKE, Servers(tmp_path, 0.0, print), tmp_path, print)


def fails() -> Mapping[str, Any]:
    """A party whose client ends with an error."""
    output_of(["sh", "-c", "echo first >&2; echo the reason >&2; exit 3"], 10)
    return {}


def test_a_failed_measurement_is_a_note(bench: Bench) -> None:
    """It leaves no row and its last line of error; the next measurement has its row."""
    rows = [
        *bench.row(fails, round=0, party="NATS"),
        *bench.row(lambda: {"steal_percent": 0.0}, round=1, party="NATS"),
    ]

    assert rows == [{"round": 1, "party": "NATS", "figures": {"steal_percent": 0.0}}]
    assert bench.notes == ["round 0, NATS failed: the reason"]


def test_a_disturbed_measurement_is_no_row(bench: Bench) -> None:
    """What the host disturbed twice is dropped by name."""
    assert list(bench.row(lambda: {"steal_percent": 50.0}, round=0, consumers=10)) == []
    assert bench.steady.dropped == ["round 0, consumers 10"]
    assert bench.notes == []


@pytest.mark.parametrize(("fills", "order"), [(True, ["fill", "measure"]), (False, ["measure"])])
def test_memory_is_filled_before_a_measurement(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fills: bool, order: list[str]
) -> None:
    """A run that counts fills free memory each time before it measures; a smoke run does not."""
    done: list[str] = []

    def measure() -> Mapping[str, Any]:
        done.append("measure")
        return {"steal_percent": 0.0}

    monkeypatch.setattr(UsedMemory, "fill", lambda _: done.append("fill"))
    bench.plan = replace(bench.plan, fills_memory=fills)
    list(bench.row(measure, round=0, party="NATS"))

    assert done == order


# What cannot be had on a machine is named with the reason, and is not an error of the run.


KAFKA = "Kafka"


@contextmanager
def cannot(reason: str) -> Iterator[object]:
    """A party that is not here."""
    raise PartyAbsent(reason)
    yield None


def test_an_absent_party_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka without its packages is None for every measure, looked for once, and its reason is kept."""
    looked: list[Path] = []

    def kafka_servers(home: Path, _: float) -> object:
        looked.append(home)
        return cannot("javac not installed")

    monkeypatch.setattr(servers, "kafka_servers", kafka_servers)
    with servers.Servers(tmp_path, 180.0, print) as running:
        assert [running.kafka, running.kafka] == [None, None]
        assert running.absent == {KAFKA: "javac not installed"}
    assert len(looked) == 1


def test_a_party_that_was_left_out_is_named(tmp_path: Path) -> None:
    """Without seconds of warming Kafka is not started, and the results say so."""
    with servers.Servers(tmp_path, 0.0, print) as running:
        assert running.kafka is None
        assert running.absent == {KAFKA: "left out of this run"}


@pytest.mark.parametrize(
    ("warm_s", "free_gib", "is_refused"),
    [(180.0, 3, True), (180.0, WARMED_GIB + 1, False), (0.5, 3, False), (0.5, 0, True)],
)
def test_kafka_needs_space_for_its_warming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_s: float, free_gib: float, is_refused: bool
) -> None:
    """A disk that three minutes of warming would fill is named before anything starts; a short one needs little."""
    usage = SimpleNamespace(free=int(free_gib * (1 << 30)))
    monkeypatch.setattr("party_kafka.shutil.disk_usage", lambda _: usage)

    refused = pytest.raises(PartyAbsent, match="GiB free") if is_refused else nullcontext()
    with refused:
        check_space(tmp_path / "not-made-yet", warm_s)


def test_nats_without_its_packages_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is an absence with a reason, not a failed import."""
    from parties import nats_servers

    monkeypatch.setattr("parties.find_spec", lambda _: None)
    with pytest.raises(PartyAbsent, match="extra `bench`"), nats_servers(tmp_path / NATS_ABSENT, sync_always=False):
        pass


def test_a_vanished_address_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root the fault is refused by name; the others need nothing."""
    monkeypatch.setattr("os.geteuid", lambda: 1_000)

    assert "root is needed" in (failover_faults.lacking(VANISH) or "")
    assert failover_faults.lacking(KILL) is None
    assert failover_faults.lacking(STOP) is None


def test_a_smoke_run_has_every_fault_and_measure() -> None:
    """It is short by its numbers, not by leaving something out."""
    whole = Plan()

    assert {each.fault for each in SMOKE.faults} == {each.fault for each in whole.faults} == {KILL, STOP, VANISH}
    assert all((SMOKE.shapes, SMOKE.readers, SMOKE.idle_partitions, SMOKE.consumed_records))
