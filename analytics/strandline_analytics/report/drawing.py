"""Draws a partition's picture: lanes of replicas, markers, curves of LEO and HW, one time axis for all.

Pure: turns a `Picture` into a `Drawing`.

Invariant: one instant has one x in every row of the drawing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from strandline.units import duration_text
from strandline_analytics.report.pictures import BelievedValue, Lane, Picture

# ---- shapes
# The parts of a drawing: a few shapes in a rectangle, rendered by `templates/drawing.svg.j2`.
#
# Invariant: shapes name classes, never colours; the page's style sheet has the colours for light, dark and paper.


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
        """A rectangle, at least wide enough to be seen."""
        self.shapes.append(
            Shape(kind="rect", css=css, x=x, y=y, width=max(width, 0.8), height=height, title=title)
        )  # fmt: skip

    def line(self, css: str, x0: float, y0: float, x1: float, y1: float) -> None:
        """A straight line."""
        self.path(css, f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}")

    def path(self, css: str, d: str, title: str = "") -> None:
        """A path in SVG's syntax."""
        if d:
            self.shapes.append(Shape(kind="path", css=css, d=d, title=title))

    def text(self, css: str, x: float, y: float, text: str, anchor: str = "start") -> None:
        """A line of text; ``y`` is its base line."""
        self.shapes.append(Shape(kind="text", css=css, x=x, y=y, text=text, anchor=anchor))

    def circle(self, css: str, x: float, y: float, radius: float, title: str = "") -> None:
        """A circle."""
        self.shapes.append(Shape(kind="circle", css=css, x=x, y=y, width=radius, title=title))


def steps_path(pieces: Iterable[tuple[float, float, float]]) -> str:
    """A step line through pieces (x0, x1, y), interrupted where pieces do not touch."""
    d, end = "", None
    for x0, x1, y in pieces:
        d += f"V{y:.1f}H{x1:.1f}" if end is not None and abs(end - x0) < 0.05 else f"M{x0:.1f} {y:.1f}H{x1:.1f}"
        end = x1
    return d


WIDE, NARROW = 860, 352
"""Widths for a screen, and for a phone held upright, on which the wide one would be too small or cut off."""

_LEFT, _RIGHT, _TOP = 70, 14, 8
_MARKS, _LANE, _LANE_GAP = 22, 18, 6
_CURVES, _ABOVE, _AXIS = 108, 42, 26
_MARKER_APART = 17.0
_TICK_APART = 90.0
_NICE_US = tuple(n * 10**p for p in range(12) for n in (1, 2, 5)) + tuple(n * 60_000_000 for n in (1, 2, 5, 10, 30, 60))


def draw_lanes(picture: Picture, width: int = WIDE) -> Drawing:
    """The drawing of one partition, ``width`` pixels wide."""
    rows = _marker_rows(picture, width)
    marks = _MARKS * (max(rows, default=0) + 1)
    lanes_at = _TOP + marks + 14
    curves_at = lanes_at + len(picture.lanes) * (_LANE + _LANE_GAP) + 14
    above_at = curves_at + _CURVES + 12
    height = above_at + _ABOVE + _AXIS
    drawing = Drawing(width=width, height=height, title=picture.title, reported=_reported(picture))
    _draw_epochs(drawing, picture, lanes_at - 4, above_at + _ABOVE)
    _draw_markers(drawing, picture, rows, above_at + _ABOVE)
    for number, lane in enumerate(picture.lanes):
        _draw_lane(drawing, picture, lane, lanes_at + number * (_LANE + _LANE_GAP))
    _draw_unknown(drawing, picture, curves_at, above_at + _ABOVE)
    _draw_curves(drawing, picture, curves_at)
    _draw_above(drawing, picture, above_at)
    _draw_axis(drawing, picture, above_at + _ABOVE)
    return drawing


def _x(picture: Picture, width: int, t_us: int) -> float:
    return _LEFT + (width - _LEFT - _RIGHT) * (t_us - picture.t0) / max(1, picture.t1 - picture.t0)


def _reported(picture: Picture) -> str:
    led = ", ".join(f"replica {lane.replica_id}" for lane in picture.lanes if lane.led)
    return f"Led by {led or 'no replica'}; {len(picture.markers)} events, listed below the picture."


def _marker_rows(picture: Picture, width: int) -> list[int]:
    """The row of each marker, chosen so that none covers another."""
    ends: list[float] = []
    rows = []
    for marker in picture.markers:
        x = _x(picture, width, marker.t_us)
        row = next((number for number, end in enumerate(ends) if x - end >= _MARKER_APART), len(ends))
        if row == len(ends):
            ends.append(x)
        ends[row] = x
        rows.append(row)
    return rows


def _draw_markers(drawing: Drawing, picture: Picture, rows: list[int], bottom: float) -> None:
    for marker, row in zip(picture.markers, rows, strict=True):
        x, y = _x(picture, drawing.width, marker.t_us), _TOP + 10 + row * _MARKS
        kind = marker.kind.lower().replace("_", "-")
        drawing.line(f"stem {kind}", x, y + 8, x, bottom)
        title = (
            f"{marker.number}. {clock_text(marker.t_us)} {marker.who}: {marker.sentence} {_in_brackets(marker.cause)}"
        )
        drawing.circle(f"marker {kind}", x, y, 8, title.strip())
        drawing.text("marker-number", x, y + 3.5, str(marker.number), "middle")


def _in_brackets(cause: str) -> str:
    return f"({cause})" if cause else ""


def _draw_epochs(drawing: Drawing, picture: Picture, top: float, bottom: float) -> None:
    for number, (t_us, epoch) in enumerate(picture.epochs):
        x = _x(picture, drawing.width, t_us)
        if number:
            drawing.line("epoch", x, top, x, bottom)
        following = picture.epochs[number + 1][0] if number + 1 < len(picture.epochs) else picture.t1
        if _x(picture, drawing.width, following) - x > 24:
            drawing.text(
                "small", x + 3, top, f"epoch {epoch}" if _x(picture, drawing.width, following) - x > 52 else f"e{epoch}"
            )


def _draw_lane(drawing: Drawing, picture: Picture, lane: Lane, y: float) -> None:
    drawing.text("label", _LEFT - 8, y + _LANE - 5, f"node {lane.replica_id}", "end")
    for span in lane.spans:
        x0, x1 = _x(picture, drawing.width, span.t0), _x(picture, drawing.width, span.t1)
        title = f"node {lane.replica_id} {span.state} for {duration_text((span.t1 - span.t0) / 1_000)}"
        drawing.rect(f"span {span.state}", x0, y, x1 - x0, _LANE, title)
        # Words repeat the colours: the picture is readable in grey, and without distinguishing red from green.
        if span.state != "member" and x1 - x0 > 46:
            drawing.text("span-word", (x0 + x1) / 2, y + _LANE - 5, span.state, "middle")
    for start, end in lane.led:
        x0, x1 = _x(picture, drawing.width, start), _x(picture, drawing.width, end)
        drawing.rect(
            "leads", x0, y, x1 - x0, 5, f"node {lane.replica_id} leads for {duration_text((end - start) / 1_000)}"
        )
        if x1 - x0 > 70:
            drawing.text("leads-word", (x0 + x1) / 2, y + _LANE - 4, "♛ leader", "middle")
        elif x1 - x0 > 14:
            drawing.text("leads-word", (x0 + x1) / 2, y + _LANE - 4, "♛", "middle")


def _draw_unknown(drawing: Drawing, picture: Picture, top: float, bottom: float) -> None:
    for start, end in picture.unknown:
        x0, x1 = _x(picture, drawing.width, start), _x(picture, drawing.width, end)
        drawing.rect(
            "unknown", x0, top, x1 - x0, bottom - top, f"nothing known for {duration_text((end - start) / 1_000)}"
        )
        if x1 - x0 > 60:
            drawing.text("unknown-word", (x0 + x1) / 2, top + 14, "not known", "middle")


def _draw_curves(drawing: Drawing, picture: Picture, top: float) -> None:
    others = [step for steps in picture.others_leo.values() for step in steps]
    values = [step.value for step in (*picture.leader_leo, *picture.hw, *others)]
    drawing.text("label", _LEFT - 8, top + 10, "offsets", "end")
    if not values:
        return
    low, high = min(values), max(values)

    def y(value: int) -> float:
        return top + 4 + (_CURVES - 8) * (1 - (value - low) / max(1, high - low))

    drawing.text("small", _LEFT - 8, top + 24, f"{high:,}", "end")
    drawing.text("small", _LEFT - 8, top + _CURVES, f"{low:,}", "end")
    drawing.line("frame", _LEFT, top + _CURVES, drawing.width - _RIGHT, top + _CURVES)
    for number, (replica, steps) in enumerate(sorted(picture.others_leo.items())):
        _draw_curve(drawing, picture, steps, y, f"other o{number % 4}", f"LEO of node {replica}, as its leader saw it")
    _draw_curve(drawing, picture, picture.leader_leo, y, "leo", "LEO of the leader")
    _draw_curve(drawing, picture, picture.hw, y, "hw", "high watermark")
    for t_us, value in picture.zombies:
        if low <= value <= high:
            drawing.circle(
                "zombie", _x(picture, drawing.width, t_us), y(value), 2.5, "reported by a leader whose term was over"
            )


def _draw_curve(
    drawing: Drawing,
    picture: Picture,
    steps: tuple[BelievedValue, ...],
    y: Callable[[int], float],
    css: str,
    title: str,
) -> None:
    """Draw a curve, with values that no later observation confirmed in grey."""
    for is_old in (False, True):
        pieces = [
            (_x(picture, drawing.width, step.t0), _x(picture, drawing.width, step.t1), y(step.value))
            for step in steps
            if step.is_old is is_old
        ]
        suffix, remark = (" old", "; no later look confirmed it") if is_old else ("", "")
        drawing.path(f"curve {css}{suffix}", steps_path(pieces), title + remark)


def _draw_above(drawing: Drawing, picture: Picture, top: float) -> None:
    """Draw LEO - HW of the leader: the records that a clean failover could still truncate."""
    pieces = above_hw(picture)
    most = max((piece.value for piece in pieces), default=0)
    bottom = top + _ABOVE
    drawing.text("label", _LEFT - 8, top + 10, "LEO − HW", "end")
    drawing.text("small", _LEFT - 8, top + 24, f"{most:,}" if pieces else "", "end")
    drawing.line("frame", _LEFT, bottom, drawing.width - _RIGHT, bottom)
    for piece in pieces:
        if piece.value:
            height = (_ABOVE - 4) * piece.value / most
            x0, x1 = _x(picture, drawing.width, piece.t0), _x(picture, drawing.width, piece.t1)
            title = f"{piece.value:,} records above the HW" + (" when it was last seen" if piece.is_old else "")
            drawing.rect("above old" if piece.is_old else "above", x0, bottom - height, x1 - x0, height, title)


def above_hw(picture: Picture) -> list[BelievedValue]:
    """LEO - HW wherever both are known; a HW that is seen before its LEO counts as 0."""
    edges = sorted({t for step in (*picture.leader_leo, *picture.hw) for t in (step.t0, step.t1)})
    found = []
    ends, marks = list(picture.leader_leo), list(picture.hw)
    for start, end in itertools.pairwise(edges):
        while ends and ends[0].t1 <= start:
            ends.pop(0)
        while marks and marks[0].t1 <= start:
            marks.pop(0)
        if ends and marks and ends[0].t0 <= start and marks[0].t0 <= start:
            is_old = ends[0].is_old or marks[0].is_old
            found.append(BelievedValue(start, end, max(0, ends[0].value - marks[0].value), is_old))
    return found


def _draw_axis(drawing: Drawing, picture: Picture, top: float) -> None:
    length = picture.t1 - picture.t0
    most = (drawing.width - _LEFT - _RIGHT) / _TICK_APART
    step = next((nice for nice in sorted(_NICE_US) if length / nice <= most), length)
    at = -(-picture.t0 // step) * step
    while at < picture.t1:
        x = _x(picture, drawing.width, at)
        drawing.line("tick", x, top, x, top + 4)
        if _LEFT + 16 < x < drawing.width - 40:
            drawing.text("small", x, top + 16, clock_text(at, step), "middle")
        at += step
    drawing.text("small", _LEFT - 8, top + 16, "UTC", "end")


def clock_text(us: int, step_us: int = 1_000) -> str:
    """``14:03:07.120``: the time of day in UTC, with digits as the step needs them."""
    text = datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%H:%M:%S")
    if step_us >= 1_000_000:
        return text
    return f"{text}.{us % 1_000_000 // 1_000:03d}" if step_us >= 1_000 else f"{text}.{us % 1_000_000:06d}"


# ---- draw_sparkline
# Draws a figure's course over the window next to its table: bars, and gaps where nothing is known.
#
# Pure: turns values into a `Drawing`. Invariant: null has no bar, zero is a bar without height on the base line.

WIDTH, HEIGHT = 200, 36


def draw_sparkline(title: str, values: Sequence[float | None]) -> Drawing:
    """One bar for each step of the window."""
    drawing = Drawing(width=WIDTH, height=HEIGHT, title=title, reported=_draw_sparkline_reported(values))
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


def _draw_sparkline_reported(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "Nothing is known."
    return f"{len(values)} steps, from {min(known):,.6g} to {max(known):,.6g}."
