"""The measurements of `export_cost.py` as text for `docs/BENCHMARKS.md`: medians and ranges, as measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import NamedTuple

from closed_loop import Figures

WANTED_PERCENT = 3.0
WANTED_RATIO = 1.1
WANTED_EVENTS_PER_S = 1_000
SIZE_OF_A_REQUEST = 1024


class Pair(NamedTuple):
    """Two rounds, one after the other, and the CPU that the rest of the machine used meanwhile."""

    on: Figures
    off: Figures
    others_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCost:
    """What one exporting node did and used, over all of its rounds."""

    events_per_s: float
    thread_ms: float
    process_ms: float

    @property
    def percent(self) -> float:
        """The share of the export's thread."""
        return 100 * self.thread_ms / max(1e-9, self.process_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement."""

    pairs: Sequence[Pair]
    nodes: Mapping[str, NodeCost]
    bytes_per_row: Mapping[str, float]
    load_before: float
    load_after: float
    run_s: float
    about: str


def report(run: Run) -> str:
    """The block of the page."""
    return "\n".join(["## What the export of state events costs", "", _about(run), "", *_nodes(run), "", *_rounds(run)])


def _about(run: Run) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        "Two clusters run side by side, one exports and one does not; one at a time is under load, in paired rounds"
        " that take turns at being first.",
        f"{run.about}.",
        f"Measured {now} on {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python"
        f" {platform.python_version()}, everybody at nice {os.nice(0)}; load average {run.load_before:.1f} before and"
        f" {run.load_after:.1f} after; others used {_span([pair.others_percent for pair in run.pairs])} % of the CPU"
        f" time that was spent, and {_span(_stolen(run))} % was stolen by the host.",
    ]
    return "\n".join(lines)


def _stolen(run: Run) -> list[float]:
    return [figures.steal_percent for pair in run.pairs for figures in (pair.on, pair.off)]


def _nodes(run: Run) -> list[str]:
    lines = ["| node | events per s | CPU of the export's thread | of the process | share |", "|---|---|---|---|---|"]
    for name, cost in run.nodes.items():
        lines.append(
            f"| {name} | {cost.events_per_s:.0f} | {cost.thread_ms:.0f} ms | {cost.process_ms:.0f} ms "
            f"| {cost.percent:.2f} % |"
        )
    thread, process = (sum(getattr(c, f) for c in run.nodes.values()) for f in ("thread_ms", "process_ms"))
    events = median(cost.events_per_s for cost in run.nodes.values())
    sizes = ", ".join(f"{size:.1f} of {dataset}" for dataset, size in run.bytes_per_row.items())
    lines += [
        "",
        f"Wanted at {WANTED_EVENTS_PER_S:,} events per s: below {WANTED_PERCENT} %; obtained at {events:,.0f}: "
        f"{100 * thread / process:.2f} %. Bytes per row in the files: {sizes}.",
    ]
    return lines


def _rounds(run: Run) -> list[str]:
    on, off = [pair.on for pair in run.pairs], [pair.off for pair in run.pairs]
    ratios = [one.p99_ms / other.p99_ms for one, other in zip(on, off, strict=True)]
    middle = [one.p50_ms / other.p50_ms for one, other in zip(on, off, strict=True)]
    lines = ["| | p50 ms | p99 ms | requests per s | CPU ms per request, all nodes |", "|---|---|---|---|---|"]
    for name, rounds in (("with export", on), ("without", off)):
        rates = [one.requests / run.run_s for one in rounds]
        cpu = [sum(one.cpu_ms_per_mb.values()) * SIZE_OF_A_REQUEST / 1e6 for one in rounds]
        p50, p99 = [one.p50_ms for one in rounds], [one.p99_ms for one in rounds]
        lines.append(f"| {name} | {_span(p50)} | {_span(p99)} | {_span(rates, 0)} | {_span(cpu, 2)} |")
    lines += [
        "",
        f"Ratio of p99, with to without, in {len(ratios)} pairs: median {median(ratios):.2f} "
        f"(wanted: at most {WANTED_RATIO}), each: {', '.join(f'{ratio:.2f}' for ratio in ratios)}. "
        f"Of p50: median {median(middle):.2f}.",
    ]
    return lines


def _span(values: Sequence[float], digits: int = 1) -> str:
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"
