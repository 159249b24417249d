"""The block of docs/BENCHMARKS.md that says what transactions cost, and its rows of docs/benchmarks.json."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from transaction_figures.against_plain import RECORD_BYTES, Pair
from transaction_figures.beside_open import ratios

MOST_LATENCY, LEAST_RATE, MOST_CPU_PERCENT, MOST_BACK_S = 4.0, 0.9, 3.0, 2.0
"""What is wanted; each figure may reach its limit, and the last has to stay below it."""
NOTHING_PERCENT = 1.0
"""Counts that differ by no more are equal: heartbeats between nodes go on by the clock, in longer rounds more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The whole measurement. Latencies are in ms, rates in records per second, processor time in CPU ms/MB, calls and
    messages per batch, ``back_s`` in seconds for each kill."""

    latencies: Sequence[Pair]
    rates: Sequence[Pair]
    cpu: Sequence[Pair]
    calls: Sequence[Pair]
    """Empty where perf cannot count them."""
    messages: Sequence[Pair]
    back_s: Sequence[float]
    ids: int


class _Line(NamedTuple):
    figure: str
    wanted: str
    measured: str
    verdict: str


def block(figures: Figures, about: Mapping[str, Any]) -> str:
    """Figures and verdicts as Markdown; ``about`` as `results.conditions` gives it."""
    where = f"{about['cpus']} CPUs, {about['kernel']}, Python {about['python']}"
    return "\n".join(
        [
            "## Transactions: what they cost, alone and beside others",
            "",
            f"Measured at commit {about['commit']} on {about['date']}; {where}; load average "
            f"{about['load_before']:.1f} before.",
            f"Three nodes on one machine with the clients, durability=fsync, records of {RECORD_BYTES:,} bytes; "
            f"rounds by turns, {len(figures.latencies)} of times and {len(figures.messages)} of counts. A figure is "
            "the median of the rounds, with the lowest and the highest; a ratio is taken in each round.",
            "Open transactions have one record each, in the partitions that the other batches (of 64 KiB) go to. "
            f"Counts are of the data nodes, with one batch at a time, and are equal if they differ by at most "
            f"{NOTHING_PERCENT:.0f} %. All {figures.ids:,} ids of the coordinator that is killed have a transaction "
            "open.",
            "",
            "| figure | wanted | measured | |",
            "|---|---|---|---|",
            *(f"| {' | '.join(line)} |" for line in _lines(figures)),
        ]
    )


def _lines(figures: Figures) -> list[_Line]:
    latency, rate = ([pair.ratio for pair in pairs] for pairs in (figures.latencies, figures.rates))
    cpu, back_s = ratios(figures.cpu), figures.back_s
    beside = f"with {figures.ids:,} transactions open"
    return [
        _Line(
            f"latency of a transaction of one record, of that of a plain record ({_both(figures.latencies, 'ms', 2)})",
            f"at most {MOST_LATENCY:.0f} x",
            _span(latency, " x", ".2f"),
            _verdict(statistics.median(latency) <= MOST_LATENCY),
        ),
        _Line(
            f"records/s in transactions of 100 ms, of those of a plain producer ({_both(figures.rates, 'records/s')})",
            f"at least {LEAST_RATE:.2f} x",
            _span(rate, " x", ".2f"),
            _verdict(statistics.median(rate) >= LEAST_RATE),
        ),
        _count(f"messages per plain batch {beside}", figures.messages),
        _count(f"system calls per plain batch {beside}", figures.calls),
        _Line(
            f"CPU ms/MB of plain batches {beside} ({_both(figures.cpu, 'ms/MB', 2)})",
            f"at most +{MOST_CPU_PERCENT:.0f} %",
            _span(cpu, " %", "+.1f"),
            _verdict(statistics.median(cpu) <= MOST_CPU_PERCENT),
        ),
        _Line(
            f"coordinator's node killed with {figures.ids:,} ids, the next commit done ({len(back_s)} kills)",
            f"below {MOST_BACK_S:.0f} s",
            f"median {statistics.median(back_s):.2f} s, longest {max(back_s):.2f} s",
            _verdict(max(back_s) < MOST_BACK_S),
        ),
    ]


def _count(figure: str, pairs: Sequence[Pair]) -> _Line:
    if not pairs:
        return _Line(figure, "no more", "perf cannot count here", "not measured")
    more = ratios(pairs)
    found = f"{_span(more, ' %', '+.1f')}"
    return _Line(
        f"{figure} ({_both(pairs, 'each', 2)})", "no more", found, _verdict(statistics.median(more) <= NOTHING_PERCENT)
    )


def _both(pairs: Sequence[Pair], unit: str, digits: int = 0) -> str:
    plain, other = (statistics.median(values) for values in zip(*pairs, strict=True))
    return f"{other:,.{digits}f} and {plain:,.{digits}f} {unit}"


def _span(values: Sequence[float], unit: str, form: str) -> str:
    return f"{statistics.median(values):{form}}{unit} (from {min(values):{form}} to {max(values):{form}})"


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def rows(figures: Figures) -> list[dict[str, Any]]:
    """For docs/benchmarks.json: one row for each round of each measure."""
    pairs = {
        "latency_ms": figures.latencies,
        "records_per_s": figures.rates,
        "messages_per_batch": figures.messages,
        "system_calls_per_batch": figures.calls,
        "cpu_ms_per_mb": figures.cpu,
    }
    found: list[dict[str, Any]] = [
        {"round": number, "figure": name, "ids": figures.ids, "figures": pair._asdict()}
        for name, measured in pairs.items()
        for number, pair in enumerate(measured)
    ]
    return found + [
        {"round": number, "figure": "back_s", "ids": figures.ids, "figures": {"back_s": back_s}}
        for number, back_s in enumerate(figures.back_s)
    ]
