"""Every measure of `make bench` runs: short, without Kafka, and without a threshold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import report
import results as measured
from tests.bench.bars import KAFKA, NATS, NATS_SYNCED, OURS, STRIPPED, SYNCED

RUN = Path(__file__).with_name("run.py")
LIMIT_S = 600
"""A run takes about a minute; ten other runs on the same cores must not make it a failure."""
PARTIES = {OURS, SYNCED, NATS, NATS_SYNCED, KAFKA, STRIPPED, "bare bidi echo"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What one run left, and its folder."""
    out = tmp_path_factory.mktemp("bench")
    # Three more processes of a GiB each are too much beside other tests; `make bench WHAT=smoke` has them.
    command = [sys.executable, str(RUN), "--smoke", "--kafka-warm-s", "0", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return out, json.loads((out / "benchmarks.json").read_text())


pytestmark = pytest.mark.timeout(LIMIT_S + 20)


def test_every_party_is_measured_or_absent_by_name(smoke: tuple[Path, dict[str, Any]]) -> None:
    """No party is left out silently: those that cannot be had here are named with the reason."""
    _, results = smoke
    measured = {row["party"] for row in results["throughput"] if row["figures"]["requests"]}
    absent = results["parts"]["throughput"]["absent"]

    assert PARTIES - measured == set(absent)
    assert {OURS, SYNCED, STRIPPED} <= measured
    assert all(absent.values())


def test_every_measure_has_figures(smoke: tuple[Path, dict[str, Any]]) -> None:
    """Full clients, cold and cached reads, each fan-out and each number of partitions left a row."""
    _, results = smoke

    assert {row["client"] for row in results["clients"]} == {
        "strandline.client, page-cache",
        "strandline.client, fsync",
    }
    assert {row["cache"] for row in results["consuming"]} == {"cold", "cached"}
    assert {row["consumers"]: row["figures"]["received"] for row in results["fan-out"]} == {1: 10, 2: 20}
    assert [row["partitions"] for row in results["idle"]] == [10]
    assert {row["workers"]: len(row["figures"]["workers_cores"]) for row in results["workers"]} == {1: 1, 2: 2}
    assert all(part["complete"] for part in results["parts"].values())
    assert [note for part in results["parts"].values() for note in part["notes"] if "failed" in note] == []


def test_a_cold_read_is_cold(smoke: tuple[Path, dict[str, Any]]) -> None:
    """The pages are out of the cache before the cold read and in it before the cached one."""
    _, results = smoke
    shares = {row["cache"]: row["figures"]["share_cached_before"] for row in results["consuming"]}

    if shares["cold"] > 0.5:
        pytest.skip("the file system of temporary files keeps its pages in memory")
    assert shares["cold"] < 0.1
    assert shares["cached"] > 0.9


def test_every_fault_has_a_gap_or_a_reason(smoke: tuple[Path, dict[str, Any]]) -> None:
    """Each fault left a gap; where root is missing, the vanished address is named instead."""
    _, results = smoke
    gaps = {row["fault"]: row["gaps_ms"] for row in results["failover"]}
    notes = results["parts"]["failover"]["notes"]

    assert {"kill", "stop"} <= set(gaps)
    assert "vanish" in gaps or any("vanish" in note for note in notes)
    assert all(gap > 0 for each in gaps.values() for gap in each)
    assert all(row["load"]["acknowledged"] for row in results["failover"])


def test_the_page_judges_no_bar(smoke: tuple[Path, dict[str, Any]]) -> None:
    """The page says that its figures mean nothing, and shows its pictures."""
    out, _ = smoke
    page = report.page(measured.read(out))

    assert "its figures mean nothing" in page
    assert "## Bars" not in page
    assert {path.name for path in (out / "img").iterdir()} == {
        f"benchmark-{name}.svg" for name in ("throughput", "clients", "failover")
    }
