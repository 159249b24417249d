"""How messages are drawn: arrows at the side of the lanes, with their words beside them.

Invariant: a message that waits ends half way, one that arrives reaches its target; each has words in a row of its own,
or is handed back to be said elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.sim.scenario.picture import Fate, Flight, Frame
from strandline.sim.scenario.picture_canvas import Canvas, shortened
from strandline.sim.scenario.picture_layout import FIRST_LANE, LANE_ROWS, Layout
from strandline.sim.scenario.wire import CONTROLLER

_COLUMN = 3
_MOST_ARROWS = 6
_ARROW_STYLES = {
    Fate.WAITING: "arrow",
    Fate.HELD: "arrow-held",
    Fate.ARRIVING: "arrow-now",
    Fate.LOST: "bad",
}
_PREFIXES = {Fate.HELD: "held: ", Fate.LOST: "lost: "}


def draw_arrows(canvas: Canvas, frame: Frame, where: Layout, progress: float) -> list[tuple[str, str]]:
    """Draw messages at the side. Returns those that found no room, as lines."""
    rows = {lane.name: FIRST_LANE + index * LANE_ROWS + 1 for index, lane in enumerate(frame.lanes)}
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
