"""Decides how a frame is drawn: a lane for each node, records above their offsets, messages as arrows at the side.

Invariant: equal offsets stand above each other in all lanes, on every frame of a film; so where two logs differ, they
differ in one column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.sim.scenario.picture import Cell, Fate, Film, Flight, Frame, Lane
from strandline.sim.scenario.picture_canvas import Canvas, Line, Span, shortened
from strandline.sim.scenario.wire import CONTROLLER

NARROWEST = 60
"""Columns below which nothing is drawn any better."""
_LANE_ROWS = 4
_FIRST_LANE = 3
_COLUMN = 3
_MOST_ARROWS = 6
_LONGEST_RECORD = 14
EPOCH_STYLES = 8
"""Epochs take turns in that many colours."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things stand on every frame of a film."""

    width: int
    names: int
    """Columns in front of the logs."""
    cell: int
    """Columns of one record, its border included."""
    gutter: int
    """Where the arrows' side begins."""

    @property
    def fits(self) -> int:
        """How many records a lane has room for."""
        return max(1, (self.gutter - self.names - 3) // self.cell)


def layout(film: Film, width: int) -> Layout:
    """Lay out a film for a terminal of ``width`` columns."""
    width = max(width, NARROWEST)
    lanes = [lane for frame in film.frames for lane in frame.lanes]
    names = max([len(CONTROLLER), *(len(lane.name) for lane in lanes)]) + 4
    records = {len(_label(cell)) for lane in lanes for cell in lane.cells}
    side = min(54, max(26, width * 2 // 5))
    return Layout(width, names, max([4, *records]) + 3, width - side)


def draw(frame: Frame, where: Layout, progress: float = 1.0) -> list[Line]:
    """Draw a frame. ``progress`` says how far a message that arrives has come, from 0 to 1."""
    canvas = Canvas(where.width)
    _draw_controller(canvas, frame, where)
    first = _window(frame, where)
    _draw_ruler(canvas, frame, where, first)
    for index, lane in enumerate(frame.lanes):
        _draw_lane(canvas, lane, where, first, _FIRST_LANE + index * _LANE_ROWS)
    bottom = _FIRST_LANE + len(frame.lanes) * _LANE_ROWS
    rest = _draw_arrows(canvas, frame, where, progress)
    if frame.cut_links:
        rest.append(("cut: " + ", ".join(frame.cut_links), "bad"))
    for text, style in rest:
        canvas.put(1, bottom - 1, shortened(text, where.width - 2), style)
        bottom += 1
    return canvas.lines()


# --- the controller and the ruler -------------------------------------------------------------------------


def _draw_controller(canvas: Canvas, frame: Frame, where: Layout) -> None:
    canvas.put(1, 0, _badge(CONTROLLER, where), "controller")
    x = 1 + where.names
    words = shortened(frame.controller, where.gutter - x - 1)
    canvas.put(x, 0, words, "changed" if frame.controller_changed else "plain")


def _badge(name: str, where: Layout) -> str:
    return f" {name.ljust(where.names - 4)} "


def _window(frame: Frame, where: Layout) -> int:
    """The first offset that is drawn."""
    ends = [max([lane.leo, *(cell.offset + 1 for cell in lane.cut)]) for lane in frame.lanes]
    start = min((lane.log_start for lane in frame.lanes), default=0)
    return max(start, max(ends, default=0) - where.fits)


def _x(where: Layout, first: int, offset: int) -> int:
    """The column at which a record begins; its border stands before it."""
    return 1 + where.names + 1 + (offset - first) * where.cell


def _draw_ruler(canvas: Canvas, frame: Frame, where: Layout, first: int) -> None:
    y = _FIRST_LANE - 1
    if first > min((lane.log_start for lane in frame.lanes), default=0):
        canvas.put(_x(where, first, first) - 1, y, "…", "ruler")
    last = max((lane.leo for lane in frame.lanes), default=0)
    for offset in range(first, min(last + 1, first + where.fits)):
        x = _x(where, first, offset) + 1
        canvas.put(x, y, str(offset), "ruler")
        if _differs(frame, offset):
            canvas.put(x + len(str(offset)) + 1, y, "≠", "bad")


def _differs(frame: Frame, offset: int) -> bool:
    """Whether two nodes have different records at an offset."""
    found = {(c.epoch, c.value) for lane in frame.lanes for c in lane.cells if c.offset == offset}
    return len(found) > 1


# --- lanes ------------------------------------------------------------------------------------------------


def _draw_lane(canvas: Canvas, lane: Lane, where: Layout, first: int, y: int) -> None:
    canvas.put(1, y, _badge(lane.name, where), "leads" if lane.leads else "name" if lane.is_up else "down")
    x = 1 + where.names
    room = where.gutter - x - 1
    role = shortened(lane.role, room)
    canvas.put(x, y, role, "changed" if "role" in lane.changed else "down" if not lane.is_up else "plain")
    more = [lane.counts] if lane.counts else []
    if lane.durable < lane.leo:
        more.append(f"durable up to {lane.durable}")
    canvas.put(x + len(role) + 2, y, shortened(", ".join(more), max(0, room - len(role) - 2)), "muted")
    _draw_log(canvas, lane, where, first, y + 1)
    _draw_marks(canvas, lane, where, first, y + 2)


def _draw_log(canvas: Canvas, lane: Lane, where: Layout, first: int, y: int) -> None:
    canvas.put(_x(where, first, first) - 1, y, "│", "border")
    there = {cell.offset for cell in lane.cells}
    ghosts = [cell for cell in lane.cut if cell.offset not in there]
    for cell in (*lane.cells, *ghosts):
        if cell.offset < first:
            continue
        x = _x(where, first, cell.offset)
        gone = cell.offset not in there
        label = f"×{_label(cell)}" if gone else f" {_label(cell)}"
        canvas.put(x, y, label.ljust(where.cell - 1), "cut" if gone else _style(cell, lane))
        canvas.put(x + where.cell - 1, y, "│", "border")
    if lane.hw > first:
        canvas.put(_x(where, first, lane.hw) - 1, y, "┃", "hw")


def _label(cell: Cell) -> str:
    return shortened(cell.value, _LONGEST_RECORD) + f"@{cell.epoch}"


def _style(cell: Cell, lane: Lane) -> str:
    epoch = f"epoch-{cell.epoch % EPOCH_STYLES}"
    return epoch if cell.offset < lane.hw else f"{epoch}-open"


def _draw_marks(canvas: Canvas, lane: Lane, where: Layout, first: int, y: int) -> None:
    hw, leo = _x(where, first, max(lane.hw, first)) - 1, _x(where, first, max(lane.leo, first)) - 1
    shown = f"▲hw {lane.hw}"
    canvas.put(hw, y, shown, "hw-moved" if "hw" in lane.changed else "hw")
    end = f"▲leo {lane.leo}" if leo != hw else f" leo {lane.leo}"
    canvas.put(max(leo, hw + len(shown)), y, end, "leo-moved" if "leo" in lane.changed else "leo")


# --- messages ---------------------------------------------------------------------------------------------

_ARROW_STYLES = {
    Fate.WAITING: "arrow",
    Fate.HELD: "arrow-held",
    Fate.ARRIVING: "arrow-now",
    Fate.LOST: "bad",
}
_PREFIXES = {Fate.HELD: "held: ", Fate.LOST: "lost: "}


def _draw_arrows(canvas: Canvas, frame: Frame, where: Layout, progress: float) -> list[tuple[str, str]]:
    """Draw messages at the side. Returns those that found no room, as lines."""
    rows = {lane.name: _FIRST_LANE + index * _LANE_ROWS + 1 for index, lane in enumerate(frame.lanes)}
    rows[CONTROLLER] = 0
    queues = _queues(frame.flights)
    shown = queues[:_MOST_ARROWS]
    labels = _label_rows(shown, rows)
    words_at = where.gutter + 1 + len(shown) * _COLUMN
    rest: list[tuple[str, str]] = []
    for index, flight in enumerate(shown):
        words, style = _PREFIXES.get(flight.fate, "") + flight.text, _ARROW_STYLES[flight.fate]
        row = labels[index]
        if row is None:
            rest.append((f"{flight.source}->{flight.target} {words}", style))
            continue
        x = where.gutter + 1 + index * _COLUMN
        _draw_arrow(canvas, flight, x, (rows[flight.source], row, rows[flight.target]), progress)
        for at in range(x + 1, words_at):
            if canvas.at(at, row) == " ":
                canvas.put(at, row, "─", style)
        canvas.put(words_at, row, " " + shortened(words, where.width - words_at - 1), style)
    hidden = len(queues) - len(shown)
    return [*rest, *([(f"and messages on {hidden} more links", "muted")] if hidden else [])]


def _queues(flights: tuple[Flight, ...]) -> list[Flight]:
    """One arrow for what waits on one link: its oldest message, with how many wait behind it."""
    found: dict[object, list[Flight]] = {}
    for flight in flights:
        waits = flight.fate in (Fate.WAITING, Fate.HELD)
        key = (flight.source, flight.target, flight.fate) if waits else len(found)
        found.setdefault(key, []).append(flight)
    return [
        replace(queue[0], text=(f"1 of {len(queue)}: " if queue[1:] else "") + _brief(queue[0]))
        for queue in found.values()
    ]


def _brief(flight: Flight) -> str:
    """What a message says; metadata of the partition is known by its first words."""
    return flight.text.replace("metadata leader=", "leader=", 1)


def _label_rows(flights: list[Flight], rows: dict[str, int]) -> list[int | None]:
    """A row of its own beside its arrow for each message, as far as there are any."""
    taken: set[int] = set()
    found: list[int | None] = []
    for flight in flights:
        low, high = sorted((rows[flight.source], rows[flight.target]))
        middle = (low + high) // 2
        free = [y for y in sorted(range(low + 1, high), key=lambda y: abs(y - middle)) if y not in taken]
        found.append(free[0] if free else None)
        taken.update(free[:1])
    return found


def _draw_arrow(canvas: Canvas, flight: Flight, x: int, rows: tuple[int, int, int], progress: float) -> None:
    """An arrow from its source to where its words stand; all the way to its target when it arrives."""
    (source, words, target), style = rows, _ARROW_STYLES[flight.fate]
    step = 1 if target > source else -1
    line = {Fate.HELD: "┆", Fate.ARRIVING: "║"}.get(flight.fate, "│")
    arrives = flight.fate is Fate.ARRIVING
    end = target if arrives else words
    for y in range(source, end, step):
        canvas.put(x, y, line, style)
    canvas.put(x, source, "○", style)
    canvas.put(x, end, "✗" if flight.fate is Fate.LOST else "▼" if step > 0 else "▲", style)
    if arrives:
        canvas.put(x, words, "╟", style)
    if arrives and progress < 1:
        canvas.put(x, source + round((target - source) * progress), "●", "arrow-dot")


# --- words ------------------------------------------------------------------------------------------------


LEGEND = "filled: below the high watermark ┃   ×: cut   ≠: two logs differ"
"""What the signs mean, in one line."""


def where_we_are(film: Film, index: int) -> str:
    """Which frame of how many, and when."""
    frame = film.frames[index]
    return f"{index + 1} of {len(film.frames)}   line {frame.line}   t = {frame.time_ms / 1000:g} s"


def caption(film: Film, index: int, width: int) -> list[Line]:
    """What is said about a frame; on the last one also why the run ended early."""
    frame = film.frames[index]
    lines = [(f"      {text}", "narration") for text in frame.narration]
    lines.append((f"{frame.line:>4}  {frame.command}", "command"))
    lines += [(f"        {text}", "bad" if text.startswith("!!") else "told") for text in frame.told]
    for claim in frame.claims:
        lines.append((f"    {'✓' if claim.holds else '✗'} {claim.text}", "good" if claim.holds else "bad"))
    coming = next((later for later in film.frames[index + 1 :] if later.line > frame.line), None)
    if coming is not None:
        lines += [("", ""), (f"{coming.line:>4}  {coming.command}", "muted")]
    if film.failure and index == len(film.frames) - 1:
        lines += [(text, "bad") for text in film.failure.splitlines()]
    return [(Span(shortened(text, width), style),) for text, style in lines]
