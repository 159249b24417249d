"""What the demo shows while it runs: permanent lines of the story, and below them what moves.

Invariant: every line of the story is printed once, in the order in which things happened, on a terminal as in a
pipe; only the moving part differs (bars that redraw, or one plain line every few seconds).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.cli.output import console
from strandline.units import bytes_text

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

_WORD = 10
_NAME = 22
_PLAIN_EVERY_S = 2.0


@dataclass(slots=True)
class Scene:
    """What moves: counts of lines, and the state of every process. The demo's parts write it, the screen reads."""

    lines: int = 0
    acked: int = 0
    acked_bytes: int = 0
    consumed: int = 0
    rate_bytes_s: float = 0.0
    services: dict[str, str] = field(default_factory=dict)
    moving: bool = False
    """Whether bars make sense now."""
    making: tuple[str, int, int] | None = None
    """Of the report that is being made: which part, how many are done, and of how many."""


def open_screen(scene: Scene) -> Screen:
    """Bars on a terminal, plain lines elsewhere."""
    target = console()
    return LiveScreen(target, scene) if target.is_terminal else PlainScreen(scene)


class PlainScreen:
    """For pipes and files: the story line by line, and a progress line every few seconds."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._begin = self._last = time.monotonic()

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def tell(self, word: str, sentence: str, *, tone: str = "") -> None:
        """One line with its time."""
        self._last = time.monotonic()
        print(f"{self._last - self._begin:6.1f} s  {word:<{_WORD}}  {sentence}", flush=True)

    def figure(self, name: str, shown: str) -> None:
        """A name and its figure, below each other."""
        print(f"{'':10}{'':<{_WORD}}  {name:<{_NAME}}  {shown}", flush=True)

    def gap(self) -> None:
        """An empty line."""
        print(flush=True)

    def refresh(self) -> None:
        """A progress line, if the last one is long enough ago."""
        if time.monotonic() - self._last < _PLAIN_EVERY_S:
            return
        if self._scene.making is not None:
            what, done, parts = self._scene.making
            self.tell("progress", f"{done} of {parts} parts, {what}")
        elif self._scene.moving:
            self.tell("progress", progress_sentence(self._scene))


class LiveScreen:
    """For terminals: the story scrolls, bars and processes stay below it."""

    def __init__(self, target: Console, scene: Scene) -> None:
        from rich.live import Live

        self._console = target
        self._scene = scene
        self._begin = time.monotonic()
        self._live: Live = Live(console=target, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveScreen:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def tell(self, word: str, sentence: str, *, tone: str = "") -> None:
        """One permanent line with its time; ``tone`` colours the word."""
        self._console.print(story_line(time.monotonic() - self._begin, word, sentence, tone))

    def figure(self, name: str, shown: str) -> None:
        """A name and its figure, below each other."""
        self._console.print(f"{'':10}{'':<{_WORD}}  [dim]{name:<{_NAME}}[/]  {shown}")

    def gap(self) -> None:
        """An empty line."""
        self._console.print()

    def refresh(self) -> None:
        """Redraws bars and processes."""
        self._live.update(moving_part(self._scene, self._console.width), refresh=True)


Screen = LiveScreen | PlainScreen
"""A place to tell the story: permanent lines, and a scene below them that moves."""


def story_line(elapsed_s: float, word: str, sentence: str, tone: str) -> RenderableType:
    """Time, word, sentence; a long sentence goes on below itself."""
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(justify="right", width=8, style="dim")
    line.add_column(width=_WORD, style=tone or "bold")
    line.add_column(overflow="fold")
    line.add_row(f"{elapsed_s:.1f} s", word, Text(sentence))
    return line


def moving_part(scene: Scene, width: int) -> RenderableType:
    """Two bars and one line of processes; nothing before the load begins."""
    from rich.console import Group
    from rich.text import Text

    bar_width = max(10, min(40, width - 64))
    if scene.making is not None:
        what, done, parts = scene.making
        return _bar("report", done, parts, bar_width, what, unit="parts")
    if not scene.moving:
        return Text("")
    rate = f"{bytes_text(scene.rate_bytes_s):>9}/s"
    return Group(
        Text(""),
        _bar("acked", scene.acked, scene.lines, bar_width, rate),
        _bar("consumed", scene.consumed, scene.lines, bar_width, ""),
        _services(scene),
    )


def _bar(word: str, done: int, total: int, width: int, right: str, *, unit: str = "lines") -> Text:
    from rich.text import Text

    filled = int(width * done / total) if total else 0
    line = Text(f"{'':10}{word:<{_WORD}}  ")
    line.append("━" * filled, style="green")
    line.append("━" * (width - filled), style="bright_black")
    line.append(f"  {percent(done, total):>5}  {done:>11,} {unit}  {right}")
    return line


def _services(scene: Scene) -> Text:
    from rich.text import Text

    tones = {"up": "green", "down": "bold red", "returning": "yellow"}
    line = Text(f"{'':10}{'processes':<{_WORD}}  ")
    for name, state in scene.services.items():
        line.append(f"{name} ")
        line.append(state, style=tones.get(state, ""))
        line.append("   ")
    return line


def progress_sentence(scene: Scene) -> str:
    """The moving part in one plain line."""
    services = ", ".join(f"{name} {state}" for name, state in scene.services.items())
    return (
        f"acked {percent(scene.acked, scene.lines)} ({scene.acked:,} lines, {bytes_text(scene.acked_bytes)}, "
        f"{bytes_text(scene.rate_bytes_s)}/s), consumed {percent(scene.consumed, scene.lines)}; {services}"
    )


def percent(done: int, total: int) -> str:
    """`47 %`; 100 only when all is done."""
    if total == 0:
        return "0 %"
    return f"{100 * done // total} %"
