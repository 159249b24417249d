"""The figures of transactions: every one is measured, and one that misses what is wanted is called missed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from transaction_figures.against_plain import Pair
from transaction_figures.beside_open import CannotCountError, counted_calls, ratios
from transaction_figures.page import Figures, block, rows

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
MET = Figures(
    latencies=[Pair(2.0, 6.0), Pair(2.0, 7.0)],
    rates=[Pair(10_000.0, 9_500.0), Pair(10_000.0, 9_400.0)],
    cpu=[Pair(4.0, 4.1), Pair(4.0, 3.9), Pair(4.0, 4.1)],
    calls=[Pair(100.0, 100.5)],
    messages=[Pair(10.0, 10.0)],
    back_s=[0.4, 0.6],
    ids=1_000,
)


def test_each_figure_within_its_limit_is_met() -> None:
    """Six figures, six verdicts."""
    text = block(MET, ABOUT)

    assert text.count("| met |") == 6
    assert "**missed**" not in text


@pytest.mark.parametrize(
    "missed",
    [
        replace(MET, latencies=[Pair(2.0, 8.1)]),
        replace(MET, rates=[Pair(10_000.0, 8_900.0)]),
        replace(MET, cpu=[Pair(4.0, 4.2)]),
        replace(MET, calls=[Pair(100.0, 102.0)]),
        replace(MET, messages=[Pair(10.0, 10.2)]),
        replace(MET, back_s=[0.4, 0.5, 2.1]),
    ],
    ids=["latency", "rate", "processor time", "system calls", "messages", "kill"],
)
def test_a_figure_beyond_its_limit_is_missed(missed: Figures) -> None:
    """That one, and no other."""
    assert block(missed, ABOUT).count("**missed**") == 1


def test_calls_that_nobody_could_count_are_neither_met_nor_missed() -> None:
    """Without perf the page says so."""
    text = block(replace(MET, calls=[]), ABOUT)

    assert "| perf cannot count here | not measured |" in text
    assert text.count("| met |") == 5


def test_a_ratio_is_taken_in_its_own_round() -> None:
    """A machine that was twice as slow in one round changes nothing."""
    assert ratios([Pair(4.0, 4.2), Pair(8.0, 8.4)]) == pytest.approx([5.0, 5.0])


def test_what_perf_could_not_count_is_no_figure() -> None:
    """A count is read; "<not counted>" is an error and not 0."""
    assert counted_calls("1437,,raw_syscalls:sys_enter,16295598,100.00,,\n") == 1_437
    with pytest.raises(CannotCountError, match="cannot count"):
        counted_calls("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n")


def test_every_round_is_a_row() -> None:
    """Each pair and each kill, by the name of its figure."""
    found = rows(MET)

    assert [row["figure"] for row in found].count("cpu_ms_per_mb") == 3
    assert found[0] == {
        "round": 0,
        "figure": "latency_ms",
        "ids": 1_000,
        "figures": {"plain": 2.0, "transactional": 6.0},
    }
    assert [row["figures"]["back_s"] for row in found if row["figure"] == "back_s"] == [0.4, 0.6]


@pytest.mark.timeout(LIMIT_S + 20)
def test_every_figure_is_measured(tmp_path: Path) -> None:
    """A run of the least quantities writes its block and its rounds beside it."""
    least = {"rounds": 1, "ids": 2, "megabytes": 1, "records": 200, "singles": 2, "batches": 6, "kills": 1}
    flags = [f"--{name}={value}" for name, value in {**least, "count-rounds": 1, "settle-ms": 0}.items()]
    here = Path(__file__).parent
    command = [sys.executable, "-m", "transaction_figures", f"--docs={tmp_path}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=here)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    measured = json.loads((tmp_path / "benchmarks.json").read_text())["transactions"]
    assert {row["figure"] for row in measured} >= {
        "latency_ms",
        "records_per_s",
        "messages_per_batch",
        "cpu_ms_per_mb",
        "back_s",
    }
    assert all(value > 0 for row in measured for value in row["figures"].values())
    assert list(json.loads((tmp_path / "measured.json").read_text())) == ["transactions"]
