"""Percentiles by nearest rank: a figure that some request really took, never one between two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the ordered values that at least ``percent`` of them do not exceed.

    Raises:
        ValueError: there is no value.
    """
    if not ordered:
        raise ValueError("no value, so no percentile")
    # A whole number of thousandths: 99.9 % of 1,000 is the 999th, whatever floats make of it.
    rank = math.ceil(round(percent * len(ordered) / 100, 6))
    return ordered[max(1, rank) - 1]


def latencies_ms(seconds: Iterable[float]) -> dict[str, float]:
    """p50, p99 and p99.9 in ms of latencies in seconds."""
    ordered = sorted(seconds)
    named = {"p50_ms": 50.0, "p99_ms": 99.0, "p999_ms": 99.9}
    return {name: round(1e3 * percentile(ordered, percent), 2) for name, percent in named.items()}
