"""Where things stand on every frame of a film: columns of names, of records, and of messages.

Invariant: one layout serves a whole film at one width, so nothing jumps from frame to frame.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.sim.scenario.picture import Cell, Film
from strandline.sim.scenario.picture_canvas import shortened
from strandline.sim.scenario.wire import CONTROLLER

NARROWEST = 60
"""Columns below which nothing is drawn any better."""
LANE_ROWS = 4
FIRST_LANE = 3
"""Rows of a lane, and the row at which the first one begins."""
_LONGEST_RECORD = 14


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
    records = {len(record_text(cell)) for lane in lanes for cell in lane.cells}
    side = min(54, max(26, width * 2 // 5))
    return Layout(width, names, max([4, *records]) + 3, width - side)


def record_text(cell: Cell) -> str:
    """How a record is called in a lane."""
    return shortened(cell.value, _LONGEST_RECORD) + f"@{cell.epoch}"
