"""What the styles of a drawn scenario look like on a terminal and in an SVG.

Invariant: colour adds to the characters and replaces none: every record names its epoch, and the high watermark has a
sign of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from strandline.sim.scenario.picture_canvas import Line
from strandline.sim.scenario.picture_drawing import EPOCH_STYLES

GROUND = "#10151c"
INK = "#d8dee6"
_DARK = "#0b0f14"
_EPOCHS = ("#5b9bd5", "#e39a3b", "#62b36b", "#c774bb", "#38b0a7", "#d3bd49", "#9a86dd", "#b98d6c")
"""One colour for each epoch in turn; none of them is the red of what went wrong."""
assert len(_EPOCHS) == EPOCH_STYLES

STYLES: dict[str, str] = {
    "": INK,
    "title": f"bold {INK}",
    "plain": "#aeb9c5",
    "muted": "#7d8894",
    "controller": f"{INK} on #2c3743",
    "name": f"{INK} on #2c3743",
    "leads": f"bold {_DARK} on {INK}",
    "down": "#6a737d",
    "changed": "bold #ffe08a",
    "ruler": "#6a737d",
    "border": "#46515d",
    "cut": "strike #ff6b6b",
    "hw": "bold #ffffff",
    "hw-moved": "bold #ffe08a",
    "leo": "#aeb9c5",
    "leo-moved": "bold #ffe08a",
    "arrow": "#8fa1b3",
    "arrow-held": "#6a737d",
    "arrow-now": "bold #ffe08a",
    "arrow-dot": "bold #ffffff",
    "narration": "italic #9fd0ff",
    "command": f"bold {INK}",
    "reported": "#aeb9c5",
    "good": "#7fcf8a",
    "bad": "bold #ff6b6b",
    **{f"epoch-{n}": f"bold {_DARK} on {colour}" for n, colour in enumerate(_EPOCHS)},
    **{f"epoch-{n}-open": f"{colour} on #222b36" for n, colour in enumerate(_EPOCHS)},
}
"""Every style that a drawing uses."""


def styled(lines: Iterable[Line]) -> Text:
    """A drawing as rich text."""
    text = Text(no_wrap=True, overflow="crop")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for span in line:
            text.append(span.text, STYLES[span.style])
    return text


def svg(lines: list[Line], title: str, width: int) -> str:
    """A drawing as an SVG picture of its own: no script, no font from elsewhere."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(styled(lines))
    ground, ink = _rgb(GROUND), _rgb(INK)
    theme = TerminalTheme(ground, ink, [ground] * 8, [ink] * 8)
    made = console.export_svg(title=title, theme=theme, unique_id="strandline")
    without_fonts = re.sub(r"@font-face \{.*?\}", "", made, flags=re.DOTALL)
    return without_fonts.replace("Fira Code, monospace", "Fira Code, DejaVu Sans Mono, Menlo, Consolas, monospace")


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue
