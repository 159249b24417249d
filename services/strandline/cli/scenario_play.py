"""`strandline scenario play`: a scenario as a moving picture, as text, or one frame of it as an SVG.

Invariant: what is shown is the run of the production cores that `strandline scenario run` compares; expected output
is not compared here, and a claim that fails ends the film with exit code 1.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, explain

if TYPE_CHECKING:
    from strandline.sim.scenario.picture import Film

NEEDS_TEXTUAL = "the moving picture needs Textual (in the checkout: pip install '.[sim]'); here are its frames as text"
_COLUMNS = 110


def play_file(file: Path, *, text: bool, svg: Path | None, step: int | None, width: int | None) -> None:
    """Show one file.

    Raises:
        CommandFailed: it cannot be read, is no scenario, or a claim in it did not hold.
    """
    film = _film(file)
    if not film.frames:
        raise CommandFailed(film.failure or f"{file}: nothing to see: there is no `topic` in it", EXIT_REFUSED)
    if step is not None and not 1 <= step <= len(film.frames):
        raise CommandFailed(f"--step is a number from 1 to {len(film.frames)}", EXIT_UNREACHABLE)
    if svg is not None:
        _write_svg(film, svg, step or 1, width or _COLUMNS)
    elif text or step is not None or not sys.stdout.isatty():
        _print(film, step, width)
    else:
        _play(film, width)
    if film.failure:
        raise CommandFailed(film.failure, EXIT_REFUSED)


def _film(file: Path) -> Film:
    from strandline.sim.scenario.language import NotReadable
    from strandline.sim.scenario.picture_taking import film

    try:
        return film(file.read_text(encoding="utf-8"), str(file))
    except NotReadable as failed:
        raise CommandFailed(str(failed), EXIT_UNREACHABLE) from failed
    except OSError as error:
        raise explain(error) or CommandFailed(f"{file}: {error.strerror}", EXIT_UNREACHABLE) from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file}: it is not UTF-8 text", EXIT_UNREACHABLE) from error


def _print(film: Film, step: int | None, width: int | None) -> None:
    from strandline.sim.scenario.picture_canvas import plain
    from strandline.sim.scenario.picture_drawing import caption, draw, where_we_are
    from strandline.sim.scenario.picture_layout import layout

    where = layout(film, width or shutil.get_terminal_size((_COLUMNS, 0)).columns)
    for index in range(len(film.frames)) if step is None else (step - 1,):
        lines = [*draw(film.frames[index], where), (), *caption(film, index, where.width), ()]
        typer.echo(f"=== {where_we_are(film, index)}\n{plain(lines)}")


def _write_svg(film: Film, path: Path, step: int, width: int) -> None:
    from strandline.cli.scenario_look import svg
    from strandline.sim.scenario.picture_drawing import caption, draw
    from strandline.sim.scenario.picture_layout import layout

    where = layout(film, width)
    lines = [*draw(film.frames[step - 1], where), (), *caption(film, step - 1, where.width)]
    try:
        path.write_text(svg(lines, film.title or film.name, where.width), encoding="utf-8")
    except OSError as error:
        raise explain(error) or CommandFailed(f"{path}: {error.strerror}", EXIT_UNREACHABLE) from error


def _play(film: Film, width: int | None) -> None:
    try:
        from strandline.cli.scenario_screen import Player
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "textual":
            raise
        typer.echo(f"strandline: {NEEDS_TEXTUAL}", err=True)
        _print(film, None, width)
        return
    Player(film).run()
