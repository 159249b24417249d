"""Prepares a statistic's result for the page: its columns and units, the worst rows first, and its bar chart.

Invariant: a column links to its declaration; rows that are left out are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from strandline.units import duration_text
from strandline_analytics.report.drawing import Drawing, draw_sparkline
from strandline_analytics.report.material import Declared, Material, Result

# ---- moments
# Formats a moment for the page: RFC 3339 in UTC, to the millisecond.


def moment_text(us: int) -> str:
    """``2026-11-21T14:03:07.120Z``."""
    whole = datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{us % 1_000_000 // 1_000:03d}Z"


MOST_ROWS = 24

_SUMMED = frozenset({"removals", "out_us", "shrinks"})
"""Values that are summed over the rows of one step; of all others the largest counts."""


class Content(StrEnum):
    """The contents of a table: figures that are not zero, only zeros, or nothing known."""

    FIGURES = "figures"
    ZEROS = "zeros"
    NOTHING_KNOWN = "nothing known"


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """The head of a column; ``anchor`` links to its definition."""

    name: str
    anchor: str
    number: bool


@dataclass(frozen=True, slots=True)
class ColumnDeclared:
    """A column's line in the definitions."""

    name: str
    unit: str
    meaning: str
    anchor: str


@dataclass(frozen=True, slots=True)
class StatTable:
    """A statistic as the page shows it."""

    id: str
    title: str
    columns: Sequence[ColumnHead]
    rows: Sequence[Sequence[str]]
    left_out: str
    spark: Drawing | None
    definition: Sequence[str]
    declared: Sequence[ColumnDeclared]
    trouble: str
    content: Content


def stat_tables(material: Material) -> list[StatTable]:
    """The tables of all statistics, in order."""
    return [stat_table(found, material) for _, found in sorted(material.results.items())]


def stat_table(found: Result, material: Material) -> StatTable:
    """One statistic's table, bar and definition."""
    extra = [declared for declared in found.declared if declared.is_extra]
    values = [declared for declared in found.declared if not declared.is_extra]
    rows = [row for row in found.rows if not extra or row.get(extra[0].name) is not None]
    by_partition = any("partition" in row for row in rows)
    headline = found.headline
    telling = [row for row in rows if _has_figures(row, values)]
    shown = sorted(telling or rows, key=lambda row: (*_badness(row, headline), *_place(row, extra)))[:MOST_ROWS]
    heads = [ColumnHead("partition", "", False)] if by_partition else []
    heads += [ColumnHead(_name(d), f"def-{found.id}-{d.name}", d.unit not in ("",)) for d in (*extra, *values)]
    heads.append(ColumnHead("coverage", "coverage", True))
    return StatTable(
        id=found.id,
        title=found.title,
        columns=heads,
        rows=[_cells(row, extra, values, by_partition=by_partition) for row in shown],
        left_out=_left_out(found, rows, telling),
        spark=_spark(found, headline, material),
        definition=paragraphs(found.definition),
        declared=[ColumnDeclared(d.name, d.unit, d.meaning, f"def-{found.id}-{d.name}") for d in found.declared],
        trouble=found.trouble,
        content=_content(found, rows, values),
    )


def _content(found: Result, rows: Sequence[Mapping[str, Any]], values: Sequence[Declared]) -> Content:
    if found.trouble or any(_has_figures(row, values) for row in rows):
        return Content.FIGURES
    is_known = not found.rows or any(row.get("coverage") for row in found.rows)
    return Content.ZEROS if is_known else Content.NOTHING_KNOWN


def _has_figures(row: Mapping[str, Any], values: Sequence[Declared]) -> bool:
    """Whether any value of a row is known and not zero."""
    return any(row.get(declared.name) for declared in values)


def _left_out(found: Result, rows: Sequence[Mapping[str, Any]], telling: Sequence[Mapping[str, Any]]) -> str:
    """The number of rows that are not shown, with the reasons."""
    known = {id(row) for row in telling or rows}
    silent = [row for row in rows if id(row) not in known]
    unknown = sum(not row.get("coverage") for row in silent)
    zeros = len(silent) - unknown
    reasons = []
    if len(telling) > MOST_ROWS:
        reasons.append(f"{MOST_ROWS} of {len(telling):,} rows, those with the largest {found.headline}")
    if zeros:
        reasons.append(f"{zeros:,} more {'row is' if zeros == 1 else 'rows are'} all zero")
    if unknown:
        reasons.append(f"nothing is known for {unknown:,} more {'row' if unknown == 1 else 'rows'}")
    return f"{'; '.join(reasons)}. All rows: strandline analytics stats {found.id} --input EXPORT" if reasons else ""


def _badness(row: Mapping[str, Any], headline: str) -> tuple[bool, float]:
    """The sort key of a row: the largest headline comes first; rows without a known headline are last."""
    value = row.get(headline)
    return value is None, -(value or 0)


def _place(row: Mapping[str, Any], extra: Sequence[Declared]) -> tuple[str, int, str]:
    return str(row.get("topic")), row.get("partition") or 0, str([row.get(d.name) for d in extra])


def _name(declared: Declared) -> str:
    for ending in ("_us", "_records", "_bytes"):
        if declared.name.endswith(ending):
            return declared.name.removesuffix(ending).replace("_", " ")
    return declared.name.replace("_", " ")


def _cells(
    row: Mapping[str, Any], extra: Sequence[Declared], values: Sequence[Declared], *, by_partition: bool
) -> list[str]:
    where = [f"{row.get('topic')}-{row.get('partition')}"] if by_partition else []
    coverage = row.get("coverage")
    cells = [cell(row.get(d.name), d) for d in (*extra, *values)]
    return [*where, *cells, "–" if coverage is None else share_text(coverage)]


def cell(value: Any, declared: Declared) -> str:
    """A value in readable units; a dash if it is unknown."""
    if value is None:
        return "–"
    if declared.unit == "us":
        return moment_text(value) if declared.name in ("began_us", "ended_us") else duration_text(value / 1_000)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {number:,}" for key, number in sorted(value.items())) or "none"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1_000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and declared.unit != "node" else str(value)


def share_text(share: float) -> str:
    """``99.7 %``; 100 only if nothing at all is missing."""
    if share >= 1:
        return "100 %"
    return f"{min(99.9, 100 * share):.1f} %"


def _spark(found: Result, headline: str, material: Material) -> Drawing | None:
    if not found.steps:
        return None
    n_steps = -(-(material.end_us - material.start_us) // material.step_us)
    values: list[float | None] = [None] * n_steps
    for row in found.steps:
        place, value = (row["window_start"] - material.start_us) // material.step_us, row.get(headline)
        if value is None or not 0 <= place < n_steps:
            continue
        before = values[place]
        values[place] = (before or 0) + value if headline in _SUMMED else max(value, before or 0)
    declared = next(d for d in found.declared if d.name == headline)
    most = max((value for value in values if value is not None), default=None)
    title = headline.removesuffix("_us").replace("_", " ")
    if most is not None:
        unit = "" if declared.unit == "us" else f" {declared.unit}"
        title += f", at most {cell(most, declared)}{unit} in a step"
    return draw_sparkline(title, values)


def paragraphs(text: str) -> list[str]:
    """A docstring's paragraphs, without line breaks."""
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
