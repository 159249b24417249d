"""The bars that the speed of Strandline is held against: a ratio within each round, the median of the rounds, met or
missed.

A bar whose peer was not measured in the run is listed as not measured, and a missed one stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Figures = Mapping[str, Any]
Row = Mapping[str, Any]

OURS, SYNCED = "Strandline stream, page-cache", "Strandline stream, fsync"
NATS, STRIPPED, KAFKA = "NATS JetStream R3", "stripped pipeline", "Kafka"


def _speed(figures: Figures) -> float:
    return float(figures["megabytes_per_s"])


def _p50(figures: Figures) -> float:
    return float(figures["p50_ms"])


def _cpu(figures: Figures) -> float:
    return float(sum(figures["cpu_ms_per_mb"].values()))


@dataclass(frozen=True, slots=True)
class Bar:
    """``figure`` of ``party`` divided by that of ``peer`` is at least, or at most, ``wanted``."""

    shape: str
    what: str
    figure: Callable[[Figures], float]
    party: str
    peer: str
    wanted: float
    at_least: bool

    def ratios(self, rows: Sequence[Row]) -> list[float]:
        """One ratio for each round in which both were measured."""
        ours, theirs = self._by_round(rows, self.party), self._by_round(rows, self.peer)
        return [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys()) if theirs[number]]

    def _by_round(self, rows: Sequence[Row], party: str) -> dict[int, float]:
        return {
            row["round"]: self.figure(row["figures"])
            for row in rows
            if row["party"] == party and row["shape"] == self.shape
        }

    def is_met(self, ratio: float) -> bool:
        """Whether this median is good enough."""
        return ratio >= self.wanted if self.at_least else ratio <= self.wanted


BARS = (
    Bar("64 KiB, window 5", "MB/s", _speed, OURS, NATS, 1.0, at_least=True),
    Bar("64 KiB, window 5", "MB/s", _speed, OURS, KAFKA, 1.0, at_least=True),
    Bar("256 KiB, window 5", "MB/s", _speed, OURS, NATS, 1.2, at_least=True),
    Bar("256 KiB, window 5", "MB/s", _speed, OURS, KAFKA, 1.0, at_least=True),
    Bar("64 KiB, window 1", "MB/s", _speed, OURS, NATS, 0.8, at_least=True),
    Bar("64 KiB, window 1", "p50", _p50, OURS, NATS, 1.2, at_least=False),
    Bar("64 KiB, window 5", "CPU ms/MB, all processes", _cpu, OURS, STRIPPED, 1.15, at_least=False),
    Bar("256 KiB, window 5", "CPU ms/MB, all processes", _cpu, OURS, STRIPPED, 1.15, at_least=False),
    Bar("64 KiB, window 5", "MB/s", _speed, SYNCED, OURS, 0.85, at_least=True),
)


def bars_table(rows: Sequence[Row]) -> str:
    """Each bar with what was wanted, what was obtained, and the verdict."""
    lines = ["## Bars", "", "| shape | ratio | wanted | median | range | |", "|---|---|---|---|---|---|"]
    for bar in BARS:
        ratios = bar.ratios(rows)
        name = f"{bar.what} of {bar.party} to {bar.peer}"
        wanted = f"{'at least' if bar.at_least else 'at most'} {bar.wanted:g}"
        if not ratios:
            lines.append(f"| {bar.shape} | {name} | {wanted} | | | not measured |")
            continue
        middle = median(ratios)
        verdict = "met" if bar.is_met(middle) else "**missed**"
        span = f"{min(ratios):.2f}-{max(ratios):.2f}"
        lines.append(f"| {bar.shape} | {name} | {wanted} | {middle:.2f} | {span} | {verdict} |")
    return "\n".join([*lines, ""])
