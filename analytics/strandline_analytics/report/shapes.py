"""What a drawing is made of: a few shapes in a rectangle, drawn by `templates/drawing.svg.j2`.

Invariant: shapes name classes, never colours; the page's style sheet knows the colours of light, dark and paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One shape. ``kind`` is rect, path, text, line or circle; numbers are in the drawing's own units."""

    kind: str
    css: str
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    d: str = ""
    text: str = ""
    title: str = ""
    anchor: str = "start"


@dataclass(slots=True, kw_only=True)
class Drawing:
    """Shapes in a rectangle; ``title`` and ``reported`` describe it to readers who cannot see it."""

    width: int
    height: int
    title: str
    reported: str = ""
    shapes: list[Shape] = field(default_factory=list)

    def rect(self, css: str, x: float, y: float, width: float, height: float, title: str = "") -> None:
        """A rectangle, at least as wide as can be seen."""
        self.shapes.append(
            Shape(kind="rect", css=css, x=x, y=y, width=max(width, 0.8), height=height, title=title)
        )  # fmt: skip

    def line(self, css: str, x0: float, y0: float, x1: float, y1: float) -> None:
        """A straight line."""
        self.path(css, f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}")

    def path(self, css: str, d: str, title: str = "") -> None:
        """A path in SVG's own words."""
        if d:
            self.shapes.append(Shape(kind="path", css=css, d=d, title=title))

    def text(self, css: str, x: float, y: float, text: str, anchor: str = "start") -> None:
        """A line of text; ``y`` is its base line."""
        self.shapes.append(Shape(kind="text", css=css, x=x, y=y, text=text, anchor=anchor))

    def circle(self, css: str, x: float, y: float, radius: float, title: str = "") -> None:
        """A circle."""
        self.shapes.append(Shape(kind="circle", css=css, x=x, y=y, width=radius, title=title))


def steps_path(pieces: Iterable[tuple[float, float, float]]) -> str:
    """A step line through (x0, x1, y), interrupted where pieces do not touch."""
    d, end = "", None
    for x0, x1, y in pieces:
        d += f"V{y:.1f}H{x1:.1f}" if end is not None and abs(end - x0) < 0.05 else f"M{x0:.1f} {y:.1f}H{x1:.1f}"
        end = x1
    return d
