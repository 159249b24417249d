"""Cells of the tables: the median with the range, and a dash where nothing was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

Row = Mapping[str, Any]
ABSENT = "–"


def span(values: Sequence[float], digits: int = 1) -> str:
    """`median [lowest-highest]`."""
    if not values:
        return ABSENT
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


def names(rows: Iterable[Row], key: str) -> list[Any]:
    """The values of ``key`` in the order in which they appear."""
    return list(dict.fromkeys(row[key] for row in rows))


def figures_of(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The figures of the rows that have these values."""
    return [row["figures"] for row in rows if all(row[key] == value for key, value in wanted.items())]


def column(figures: Iterable[Row], name: str) -> list[float]:
    """One figure of each; files from before it was measured have none."""
    return [one[name] for one in figures if name in one]


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table and an empty line."""
    rows = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *rows, ""]
