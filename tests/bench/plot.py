"""Pictures of measurements as SVG text: one dot per round, a bar at the median, nothing smoothed and nothing left out.

A panel has one scale, written below it: from zero, or logarithmic by whole decades where figures span several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import median
from typing import NamedTuple

WIDTH, LABELS, RIGHT = 860, 250, 90
LINE, TITLE, GAP = 20, 30, 18
OURS, OTHERS = "#0b6e8f", "#8a5a19"


class Line(NamedTuple):
    """One party's values; ``is_ours`` decides the colour."""

    label: str
    values: Sequence[float]
    is_ours: bool


class Panel(NamedTuple):
    """Lines with a common scale."""

    title: str
    lines: Sequence[Line]


def picture(title: str, unit: str, panels: Sequence[Panel], *, logarithmic: bool = False) -> str:
    """The whole SVG."""
    body: list[str] = []
    top = TITLE + GAP
    for panel in panels:
        body += _panel(panel, unit, top, logarithmic=logarithmic)
        top += TITLE + LINE * (len(panel.lines) + 1) + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>'
    name = f'<text x="12" y="{TITLE}" font-size="16" fill="#1b1b1b">{escape(title)}</text>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, name, *body, "</svg>", ""])


def place(value: float, low: float, high: float, *, logarithmic: bool) -> float:
    """Where a value lies between the left and the right end of its panel, in pixels."""
    if logarithmic:
        value, low, high = (math.log10(number) for number in (value, low, high))
    share = (value - low) / (high - low) if high > low else 0.0
    return LABELS + share * (WIDTH - LABELS - RIGHT)


def ticks(values: Sequence[float], *, logarithmic: bool) -> list[float]:
    """The marks of the scale: zero and the highest value, or every decade around the values, which are above zero."""
    if not logarithmic:
        return [0.0, max(values, default=1.0)]
    lowest, highest = min(values, default=1.0), max(values, default=10.0)
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def shown(value: float) -> str:
    """Four digits, or all of a whole number."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


def _panel(panel: Panel, unit: str, top: float, *, logarithmic: bool) -> list[str]:
    marks = ticks([value for line in panel.lines for value in line.values], logarithmic=logarithmic)
    low, high = marks[0], marks[-1]
    drawn = [_text(12, top + 14, f"{panel.title}, {unit}", 'font-weight="bold" fill="#1b1b1b"')]
    foot = top + TITLE + LINE * len(panel.lines)
    for mark in marks:
        x = place(mark, low, high, logarithmic=logarithmic)
        drawn.append(f'<line x1="{x:.1f}" y1="{top + TITLE - 8}" x2="{x:.1f}" y2="{foot - 8}" stroke="#e2e2e2"/>')
        drawn.append(_text(x, foot + 4, shown(mark), 'text-anchor="middle" fill="#6b6b6b"'))
    for number, line in enumerate(panel.lines):
        drawn += _line(line, top + TITLE + LINE * number, low, high, logarithmic=logarithmic)
    return drawn


def _line(line: Line, y: float, low: float, high: float, *, logarithmic: bool) -> list[str]:
    colour = OURS if line.is_ours else OTHERS
    drawn = [
        _text(LABELS - 12, y + 4, line.label, 'text-anchor="end" fill="#1b1b1b"'),
        f'<line x1="{LABELS}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#e2e2e2"/>',
    ]
    for value in line.values:
        x = place(value, low, high, logarithmic=logarithmic)
        drawn.append(f'<circle cx="{x:.1f}" cy="{y}" r="3.5" fill="{colour}" fill-opacity="0.45"/>')
    if line.values:
        middle = median(line.values)
        x = place(middle, low, high, logarithmic=logarithmic)
        drawn.append(f'<rect x="{x - 1.5:.1f}" y="{y - 7}" width="3" height="14" fill="{colour}"/>')
        drawn.append(_text(WIDTH - RIGHT + 12, y + 4, shown(middle), f'fill="{colour}"'))
    return drawn


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
