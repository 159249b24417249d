"""How a drawing is kept: a grid of characters, each with the name of its style; read out as lines of spans.

Invariant: a style is a name (`epoch-3`, `arrow`); what it looks like is up to the code that shows the drawing, and
without any style the characters alone still say everything.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple


class Span(NamedTuple):
    """A run of characters in one style; the empty style is plain text."""

    text: str
    style: str = ""


Line = tuple[Span, ...]
_BLANK = (" ", "")


class Canvas:
    """A grid that grows downwards; what lies right of ``width`` is not there."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._rows: list[list[tuple[str, str]]] = []

    def put(self, x: int, y: int, text: str, style: str = "") -> None:
        """Write a text from a place on to the right."""
        while len(self._rows) <= y:
            self._rows.append([_BLANK] * self.width)
        for at, character in enumerate(text, x):
            if 0 <= at < self.width:
                self._rows[y][at] = character, style

    def at(self, x: int, y: int) -> str:
        """The character at a place."""
        return self._rows[y][x][0] if y < len(self._rows) and 0 <= x < self.width else " "

    def lines(self) -> list[Line]:
        """Everything, without the blanks at the ends of lines."""
        return [_line(row) for row in self._rows]


def _line(row: list[tuple[str, str]]) -> Line:
    end = len(row)
    while end and row[end - 1] == _BLANK:
        end -= 1
    groups = groupby(row[:end], key=lambda cell: cell[1])
    return tuple(Span("".join(character for character, _ in cells), style) for style, cells in groups)


def plain(lines: list[Line]) -> str:
    """A drawing as text alone."""
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines)


def shortened(text: str, width: int) -> str:
    """A text that fits, with an ellipsis where its end was."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
