"""Every measure of `make bench` runs: short, without Kafka, and without a threshold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import report
from bars import OURS, STRIPPED, SYNCED

RUN = Path(__file__).with_name("run.py")
LIMIT_S = 600
"""A run takes about two minutes; ten other runs on the same cores must not make it a failure."""

pytestmark = pytest.mark.timeout(LIMIT_S + 20)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one run left."""
    out = tmp_path_factory.mktemp("bench")
    # Three more processes of a GiB each are too much beside other tests; `make bench WHAT=smoke` has them.
    command = [sys.executable, str(RUN), "--smoke", "--kafka-warm-s", "0", "--out", str(out)]
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=paths, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads((out / "benchmarks.json").read_text())


def test_every_party_is_measured_or_absent_by_name(smoke: dict[str, Any]) -> None:
    """No party is left out silently: those that cannot be had here are named with the reason."""
    measured = {row["party"] for row in smoke["throughput"] if row["figures"]["requests"]}
    absent = smoke["parts"]["throughput"]["absent"]

    assert set(report.PARTIES) - measured == set(absent)
    assert {OURS, SYNCED, STRIPPED} <= measured
    assert all(absent.values())


def test_every_measure_has_figures(smoke: dict[str, Any]) -> None:
    """Full clients, idle cost and each part without a peer left their rows, and no measurement failed."""
    assert {row["client"] for row in smoke["clients"] if row["figures"]["records"]} == {
        "strandline.client, page-cache",
        "strandline.client, fsync",
    }
    assert [row["partitions"] for row in smoke["idle"]] == [10]
    assert {part: len(smoke[part]) for part in report.SIZES} == {
        "groups": 5,
        "transactions": 3,
        "metadata": 5,
        "moves": 3,
        "rules": 3,
    }
    assert all(part["complete"] for part in smoke["parts"].values())
    assert [note for part in smoke["parts"].values() for note in part["notes"] if "failed" in note] == []


def test_every_fault_has_a_gap_or_a_reason(smoke: dict[str, Any]) -> None:
    """Each fault left a gap; where root is missing, the vanished address is named instead."""
    gaps = {row["fault"]: row["gaps_ms"] for row in smoke["failover"]}
    notes = smoke["parts"]["failover"]["notes"]

    assert {"kill", "stop"} <= set(gaps)
    assert "vanish" in gaps or any("vanish" in note for note in notes)
    assert all(gap > 0 for each in gaps.values() for gap in each)
    assert all(row["load"]["acknowledged"] for row in smoke["failover"])


def test_the_page_of_a_smoke_run_judges_no_bar(smoke: dict[str, Any]) -> None:
    """The page says that its figures mean nothing, and has every table."""
    page = report.page(smoke)

    assert "its figures mean nothing" in page
    assert "## Bars" not in page
    assert page.count("\n## ") == len(report.SECTIONS) + 1
