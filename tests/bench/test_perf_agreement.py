"""Figures of `strandline perf` and of transactions: every one is measured, and a gap is called missed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from perf_agreement import Pair, block, rows
from tests.bench.anatomy_page import rows_of, system_calls
from transaction_figures.against_plain import Pair as PairTransactions
from transaction_figures.beside_open import CannotCountError, counted_calls, ratios
from transaction_figures.page import Figures
from transaction_figures.page import block as block_transactions
from transaction_figures.page import rows as rows_transactions

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


# The figures of transactions: every one is measured, and one that misses what is wanted is called missed.


MET = Figures(
    latencies=[PairTransactions(2.0, 6.0), PairTransactions(2.0, 7.0)],
    rates=[PairTransactions(10_000.0, 9_500.0), PairTransactions(10_000.0, 9_400.0)],
    cpu=[PairTransactions(4.0, 4.1), PairTransactions(4.0, 3.9), PairTransactions(4.0, 4.1)],
    calls=[PairTransactions(100.0, 100.5)],
    messages=[PairTransactions(10.0, 10.0)],
    back_s=[0.4, 0.6],
    ids=1_000,
)


def test_each_figure_within_its_limit_is_met() -> None:
    """Six figures, six verdicts."""
    text = block_transactions(MET, ABOUT)

    assert text.count("| met |") == 6
    assert "**missed**" not in text


@pytest.mark.parametrize(
    "missed",
    [
        replace(MET, latencies=[PairTransactions(2.0, 8.1)]),
        replace(MET, rates=[PairTransactions(10_000.0, 8_900.0)]),
        replace(MET, cpu=[PairTransactions(4.0, 4.2)]),
        replace(MET, calls=[PairTransactions(100.0, 102.0)]),
        replace(MET, messages=[PairTransactions(10.0, 10.2)]),
        replace(MET, back_s=[0.4, 0.5, 2.1]),
    ],
    ids=["latency", "rate", "processor time", "system calls", "messages", "kill"],
)
def test_a_figure_beyond_its_limit_is_missed(missed: Figures) -> None:
    """That one, and no other."""
    assert block_transactions(missed, ABOUT).count("**missed**") == 1


def test_calls_that_nobody_could_count_are_neither_met_nor_missed() -> None:
    """Without perf the page says so."""
    text = block_transactions(replace(MET, calls=[]), ABOUT)

    assert "| perf cannot count here | not measured |" in text
    assert text.count("| met |") == 5


def test_a_ratio_is_taken_in_its_own_round() -> None:
    """A machine that was twice as slow in one round changes nothing."""
    assert ratios([PairTransactions(4.0, 4.2), PairTransactions(8.0, 8.4)]) == pytest.approx([5.0, 5.0])


def test_what_perf_could_not_count_is_no_figure() -> None:
    """A count is read; "<not counted>" is an error and not 0."""
    assert counted_calls("1437,,raw_syscalls:sys_enter,16295598,100.00,,\n") == 1_437
    with pytest.raises(CannotCountError, match="cannot count"):
        counted_calls("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n")


def test_every_round_is_a_row() -> None:
    """Each pair and each kill, by the name of its figure."""
    found = rows_transactions(MET)

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


# The anatomy reads the summaries of perf; its table has a row for each count.


SUMMARY = """
 Summary of events:

 python (3464), 180 events, 60.0%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   futex                 45      3   454.432     0.000    10.098    15.429      2.59%
   epoll_wait             5      0     1.631     0.021     0.036     0.072      4.08%

 event_engine (3465), 120 events, 40.0%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   futex                 15      0   454.432     0.000    10.098    15.429      2.59%
"""


def test_system_calls_are_added_up_over_threads() -> None:
    """A call that two threads make counts for both; headings and totals are no calls."""
    assert system_calls(SUMMARY) == {"futex": 60, "epoll_wait": 5}


def test_a_count_that_one_side_lacks_is_zero_there() -> None:
    """What only one pipeline does is shown beside 0, and what all do hardly ever is left out."""
    ours = {"leader": {"futex": 12.0, "madvise": 0.01}, "follower0": {"futex": 4.0}}
    stripped = {"leader": {"futex": 8.0}, "follower0": {}}
    rows = rows_of({"ours": ours, "stripped": stripped})

    assert rows == [("futex", [12.0, 8.0, 4.0, 0.0])]
