"""The counts of `anatomy.py` as a table: what `perf trace` prints, read; and a row for each count."""

from __future__ import annotations

import re
from collections import Counter

ROLES = ("leader", "follower0")
_ROW = re.compile(r"^\s+(\w+)\s+(\d+)\s+\d+\s")

Figures = dict[str, dict[str, float]]
"""Per role and name, the count of one acknowledged batch."""


def system_calls(summary: str) -> Counter[str]:
    """The calls of all threads in a summary of `perf trace -s`."""
    calls: Counter[str] = Counter()
    for line in summary.splitlines():
        if (row := _ROW.match(line)) is not None:
            calls[row[1]] += int(row[2])
    return calls


RARE = 0.05
"""System calls that are rarer than this per batch in every column are left out."""


def rows_of(found: dict[str, Figures]) -> list[tuple[str, list[float]]]:
    """Name, and the count at our leader, the stripped leader, our follower, the stripped follower."""
    names = dict.fromkeys(n for figures in found.values() for role in ROLES for n in figures[role])
    rows = [(n, [found[party][role].get(n, 0.0) for role in ROLES for party in ("ours", "stripped")]) for n in names]
    return [row for row in rows if max(row[1]) >= RARE]


def shown(value: float) -> str:
    """A count for a table."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
