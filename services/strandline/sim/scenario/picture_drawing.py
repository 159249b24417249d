"""How a frame is drawn: a lane for each node, records above their offsets, messages as arrows at the side.

Invariant: equal offsets stand above each other in all lanes, on every frame of a film; so where two logs differ, they
differ in one column.
"""

from __future__ import annotations

from strandline.sim.scenario.picture import Answer, Cell, Film, Frame, Lane
from strandline.sim.scenario.picture_arrows import draw_arrows
from strandline.sim.scenario.picture_canvas import Canvas, Line, Span, shortened
from strandline.sim.scenario.picture_layout import FIRST_LANE, LANE_ROWS, Layout, record_text
from strandline.sim.scenario.wire import CONTROLLER

_MOST_SENT = 8
EPOCH_STYLES = 8
"""Epochs take turns in that many colours."""


def draw(frame: Frame, where: Layout, progress: float = 1.0) -> list[Line]:
    """Draw a frame. ``progress`` says how far a message that arrives has come, from 0 to 1."""
    canvas = Canvas(where.width)
    _draw_controller(canvas, frame, where)
    first = _window(frame, where)
    _draw_ruler(canvas, frame, where, first)
    for index, lane in enumerate(frame.lanes):
        _draw_lane(canvas, lane, where, first, FIRST_LANE + index * LANE_ROWS)
    bottom = FIRST_LANE + len(frame.lanes) * LANE_ROWS
    rest = draw_arrows(canvas, frame, where, progress)
    if frame.sent:
        _draw_sent(canvas, frame, where, bottom)
        bottom += 2
    if frame.cut_links:
        rest.append(("cut: " + ", ".join(frame.cut_links), "bad"))
    for text, style in rest:
        canvas.put(1, bottom - 1, shortened(text, where.width - 2), style)
        bottom += 1
    return canvas.lines()


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
    y = FIRST_LANE - 1
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
        label = f"×{record_text(cell)}" if gone else f" {record_text(cell)}"
        canvas.put(x, y, label.ljust(where.cell - 1), "cut" if gone else _style(cell, lane))
        canvas.put(x + where.cell - 1, y, "│", "border")
    if lane.hw > first:
        canvas.put(_x(where, first, lane.hw) - 1, y, "┃", "hw")


def _style(cell: Cell, lane: Lane) -> str:
    epoch = f"epoch-{cell.epoch % EPOCH_STYLES}"
    return epoch if cell.offset < lane.hw else f"{epoch}-open"


def _draw_marks(canvas: Canvas, lane: Lane, where: Layout, first: int, y: int) -> None:
    hw, leo = _x(where, first, max(lane.hw, first)) - 1, _x(where, first, max(lane.leo, first)) - 1
    shown = f"▲hw {lane.hw}"
    canvas.put(hw, y, shown, "hw-moved" if "hw" in lane.changed else "hw")
    end = f"▲leo {lane.leo}" if leo != hw else f" leo {lane.leo}"
    canvas.put(max(leo, hw + len(shown)), y, end, "leo-moved" if "leo" in lane.changed else "leo")


_ANSWER_STYLES = {Answer.ACKED: "good", Answer.WAITING: "plain", Answer.REFUSED: "muted", Answer.NONE: "muted"}


def _draw_sent(canvas: Canvas, frame: Frame, where: Layout, y: int) -> None:
    """What producers know, one group for each answer; a cross marks what was acknowledged and is in no log."""
    x = 1 + where.names
    for answer, style in _ANSWER_STYLES.items():
        group = [sent for sent in frame.sent if sent.answer is answer]
        if not group:
            continue
        canvas.put(x, y, answer.value, "muted")
        x += len(answer.value) + 1
        for sent in ([] if len(group) <= _MOST_SENT else [None]) + group[-_MOST_SENT:]:
            text = "…" if sent is None else f"×{sent.label}" if sent.is_lost else sent.label
            canvas.put(x, y, text, "bad" if sent is not None and sent.is_lost else style)
            x += len(text) + 1
        x += 2


LEGEND = "filled: below the high watermark ┃   ×: cut, or acknowledged and in no log   ≠: two logs differ"
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
    lines += [(f"        {text}", "bad" if text.startswith("!!") else "reported") for text in frame.reported]
    for claim in frame.claims:
        lines.append((f"    {'✓' if claim.holds else '✗'} {claim.text}", "good" if claim.holds else "bad"))
    coming = next((later for later in film.frames[index + 1 :] if later.line > frame.line), None)
    if coming is not None:
        lines += [("", ""), (f"{coming.line:>4}  {coming.command}", "muted")]
    if film.failure and index == len(film.frames) - 1:
        lines += [(text, "bad") for text in film.failure.splitlines()]
    return [(Span(shortened(text, width), style),) for text, style in lines]
