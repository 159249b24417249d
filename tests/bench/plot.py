"""Pictures of measurements as SVG text: one dot per round, a bar at the median, nothing smoothed and nothing left out.

A panel has one scale, from zero, or logarithmic where figures span decades.
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
        top += TITLE + LINE * len(panel.lines) + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>'
    name = f'<text x="12" y="{TITLE}" font-size="16" fill="#1b1b1b">{escape(title)}</text>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, name, *body, "</svg>", ""])


def place(value: float, low: float, high: float, *, logarithmic: bool) -> float:
    """Where a value lies between the left and the right end of its panel, in pixels."""
    if logarithmic:
        value, low, high = (math.log10(max(number, 0.1)) for number in (value, low, high))
    share = (value - low) / (high - low) if high > low else 0.0
    return LABELS + share * (WIDTH - LABELS - RIGHT)


def _panel(panel: Panel, unit: str, top: float, *, logarithmic: bool) -> list[str]:
    values = [value for line in panel.lines for value in line.values]
    high = max(values, default=1.0)
    low = min(values, default=0.1) if logarithmic else 0.0
    scale = "logarithmic scale" if logarithmic else "from zero"
    drawn = [
        f'<text x="12" y="{top + 14}" font-weight="bold" fill="#1b1b1b">{escape(panel.title)}, {unit}, {scale}</text>'
    ]
    for number, line in enumerate(panel.lines):
        y = top + TITLE + LINE * number
        colour = OURS if line.is_ours else OTHERS
        drawn.append(f'<text x="{LABELS - 8}" y="{y + 4}" text-anchor="end" fill="#1b1b1b">{escape(line.label)}</text>')
        drawn.append(f'<line x1="{LABELS}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#e2e2e2"/>')
        for value in line.values:
            x = place(value, low, high, logarithmic=logarithmic)
            drawn.append(f'<circle cx="{x:.1f}" cy="{y}" r="3.5" fill="{colour}" fill-opacity="0.45"/>')
        if line.values:
            middle = median(line.values)
            x = place(middle, low, high, logarithmic=logarithmic)
            drawn.append(f'<rect x="{x - 1.5:.1f}" y="{y - 7}" width="3" height="14" fill="{colour}"/>')
            drawn.append(f'<text x="{WIDTH - RIGHT + 10}" y="{y + 4}" fill="{colour}">{middle:,.4g}</text>')
    return drawn
