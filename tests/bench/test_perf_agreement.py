"""The comparison of `strandline perf` with the bench: every pair is measured, and a gap is called missed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from perf_agreement import Pair, block, rows

LIMIT_S = 240
"""A run takes some seconds; ten other runs on the same cores must not make it a failure."""
ABOUT = {
    "cpus": 2,
    "kernel": "Linux 6",
    "python": "3.11",
    "commit": "abc1234",
    "date": "2026-11-26",
    "load_before": 0.5,
}


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(0.94, "**missed**"), (0.95, "met"), (1.0, "met"), (1.05, "met"), (1.06, "**missed**")]
)
def test_a_gap_of_more_than_five_percent_is_missed(ratio: float, verdict: str) -> None:
    """In either direction: a command that says more than the bench is as wrong as one that says less."""
    text = block({"x": [Pair(100.0, 100.0 * ratio)]}, ABOUT)

    assert text.splitlines()[-1].endswith(f"| {verdict} |")


def test_a_ratio_is_taken_in_its_own_pair() -> None:
    """A machine that was twice as slow during one pair changes nothing; one pair among three decides nothing."""
    text = block({"x": [Pair(4_000.0, 4_000.0), Pair(2_000.0, 2_020.0), Pair(4_000.0, 8_000.0)]}, ABOUT)

    assert text.splitlines()[-1] == "| x | 3 | 4,000 | 4,000 | 1.01 (from 1.00 to 2.00) | within 5 % | met |"


def test_every_pair_is_a_row() -> None:
    """By its number and the name of its figure."""
    assert rows({"x": [Pair(1.0, 2.0)]}) == [{"pair": 0, "figure": "x", "figures": {"bench": 1.0, "perf": 2.0}}]


@pytest.mark.timeout(LIMIT_S + 20)
def test_every_command_is_compared(tmp_path: Path) -> None:
    """A run of the least quantities writes its block and its pairs beside it."""
    script = Path(__file__).parent / "perf_agreement.py"
    command = [sys.executable, str(script), "--short", f"--docs={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    measured = json.loads((tmp_path / "benchmarks.json").read_text())["perf"]
    assert [row["figure"].split("`")[1] for row in measured] == ["perf produce", "perf consume", "perf end-to-end"]
    assert all(value > 0 for row in measured for value in row["figures"].values())
    assert list(json.loads((tmp_path / "measured.json").read_text())) == ["perf"]
