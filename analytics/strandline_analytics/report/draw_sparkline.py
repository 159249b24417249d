"""How a figure's course over the window is drawn beside its table: bars, and gaps where nothing is known.

Pure: values in, a `Drawing` out. Invariant: null is no bar, zero is a bar of no height on the base line.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline_analytics.report.shapes import Drawing

WIDTH, HEIGHT = 200, 36


def draw_sparkline(title: str, values: Sequence[float | None]) -> Drawing:
    """One bar for each step of the window."""
    drawing = Drawing(width=WIDTH, height=HEIGHT, title=title, reported=_reported(values))
    most = max((abs(value) for value in values if value is not None), default=0) or 1
    each = WIDTH / max(1, len(values))
    for number, value in enumerate(values):
        x = number * each
        if value is None:
            drawing.rect("unknown", x, 2, each - 0.6, HEIGHT - 4, "nothing known")
        elif value:
            height = max(1.0, (HEIGHT - 4) * abs(value) / most)
            drawing.rect("bar", x, HEIGHT - 2 - height, each - 0.6, height, f"{value:,.6g}")
    drawing.line("frame", 0, HEIGHT - 1.5, WIDTH, HEIGHT - 1.5)
    return drawing


def _reported(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "Nothing is known."
    return f"{len(values)} steps, from {min(known):,.6g} to {max(known):,.6g}."
