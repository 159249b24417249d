"""How a film is played on a terminal: which key does what, and how long a frame stays.

Invariant: everything that is shown comes from the film and the drawing; this file knows keys, a clock and two panes.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import Footer, Static

from strandline.cli.scenario_look import GROUND, INK, styled
from strandline.sim.scenario.picture import Fate, Film
from strandline.sim.scenario.picture_canvas import Span, shortened
from strandline.sim.scenario.picture_drawing import LEGEND, caption, draw, where_we_are
from strandline.sim.scenario.picture_layout import Layout, layout

_TICK_S = 0.05
_FLIGHT_S = 0.6
"""How long a message takes to arrive, at the ordinary speed."""
_FRAME_S = 1.6
"""How long a frame stays, at the ordinary speed."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


class Player(App[None]):
    """Plays one film."""

    CSS = f"""
    Screen {{ background: {GROUND}; color: {INK}; }}
    #head {{ height: 1; padding: 0 1; background: #1b232d; }}
    #picture {{ height: auto; padding: 1; }}
    #words {{ border-top: solid #2c3743; border-title-color: #7d8894; padding: 0 1; background: {GROUND}; }}
    #caption {{ height: auto; }}
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "step(1)", "forward", key_display="→"),
        Binding("left,h", "step(-1)", "back", key_display="←"),
        Binding("space", "play", "play, pause"),
        Binding("down,j", "command(1)", "next command", key_display="↓"),
        Binding("up,k", "command(-1)", "last command", key_display="↑"),
        Binding("home", "jump(0)", "begin"),
        Binding("end", "jump(-1)", "end"),
        Binding("plus,equals_sign", "speed(1)", "faster", key_display="+"),
        Binding("minus", "speed(-1)", "slower", key_display="-"),
        Binding("q,escape", "quit", "quit", key_display="q"),
    ]

    def __init__(self, film: Film, *, playing: bool = False) -> None:
        super().__init__()
        assert film.frames, "a film has at least one frame"
        self._film = film
        self.index = 0
        self.playing = playing
        self.speed = 1.0
        self._shown_s = 0.0
        self._layout: Layout | None = None

    def compose(self) -> ComposeResult:
        """A line on top, the picture, and what is said about it."""
        yield Static(id="head")
        yield Static(id="picture")
        with VerticalScroll(id="words"):
            yield Static(id="caption")
        yield Footer()

    def on_mount(self) -> None:
        """Start the clock."""
        self.query_one("#words").border_title = LEGEND
        self.set_interval(_TICK_S, lambda: self.advance(_TICK_S))

    def on_resize(self, event: Resize) -> None:
        """Lay out again."""
        self._layout = layout(self._film, event.size.width - 2)
        self._show()

    def advance(self, seconds: float) -> None:
        """Let time pass: a message flies on, and while the film plays the next frame comes."""
        before, self._shown_s = self._progress, self._shown_s + seconds * self.speed
        if self.playing and self._shown_s >= _FRAME_S:
            self._go(self.index + 1)
            self.playing = self.index < len(self._film.frames) - 1
            self._show()
        elif before < 1 and self._flies:
            self._show()

    @property
    def _progress(self) -> float:
        return min(1.0, self._shown_s / _FLIGHT_S)

    @property
    def _flies(self) -> bool:
        return any(flight.fate is Fate.ARRIVING for flight in self._film.frames[self.index].flights)

    def action_step(self, by: int) -> None:
        """One frame on or back; playing ends."""
        self.playing = False
        self._go(self.index + by)
        self._show()

    def action_command(self, by: int) -> None:
        """To the first frame of the next command, or of the one before."""
        frames, here = self._film.frames, self._film.frames[self.index].line
        found = [i for i, f in enumerate(frames) if (f.line > here if by > 0 else f.line < here)]
        if found:
            line = frames[found[0] if by > 0 else found[-1]].line
            self.playing = False
            self._go(next(i for i, frame in enumerate(frames) if frame.line == line))
            self._show()

    def action_jump(self, to: int) -> None:
        """To the first frame (0) or the last (-1)."""
        self.playing = False
        self._go(to % len(self._film.frames))
        self._show()

    def action_play(self) -> None:
        """Play or pause; at the end play from the beginning."""
        self.playing = not self.playing
        if self.playing and self.index == len(self._film.frames) - 1:
            self._go(0)
        self._show()

    def action_speed(self, by: int) -> None:
        """Faster or slower."""
        at = SPEEDS.index(self.speed) + by
        self.speed = SPEEDS[min(max(at, 0), len(SPEEDS) - 1)]
        self._show()

    def _go(self, index: int) -> None:
        self.index = min(max(index, 0), len(self._film.frames) - 1)
        self._shown_s = 0.0

    def _show(self) -> None:
        if self._layout is None:
            return
        film, width = self._film, self._layout.width
        state = f"{'plays' if self.playing else 'stands'} {self.speed:g}x   {where_we_are(film, self.index)}"
        title = shortened(film.title or film.name, max(10, width - len(state) - 2))
        head = (Span(title.ljust(width - len(state)), "title"), Span(state, "muted"))
        self.query_one("#head", Static).update(styled([head]))
        drawing = draw(film.frames[self.index], self._layout, self._progress)
        self.query_one("#picture", Static).update(styled(drawing))
        self.query_one("#caption", Static).update(styled(caption(film, self.index, width)))
