"""How a search of every order of steps in a small world is shown, and its exit code.

Invariant: exit code 1 means that a rule does not hold, and then the steps to the world that breaks it are printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from strandline.cli.failures import EXIT_REFUSED

if TYPE_CHECKING:
    from strandline.sim.breadth_first import Progress, Result


_Bounds = TypeVar("_Bounds")
_Step = TypeVar("_Step")


def show(
    bounds: _Bounds, search: Callable[[Progress], Result[_Bounds, _Step]], shown: Callable[[_Step], str] = str
) -> None:
    """Run ``search``, report on stderr how far it is, and print what it found, each step as ``shown``.

    Raises:
        typer.Exit: with code 1, a rule does not hold.
    """
    began_s = time.process_time()

    def reported(depth: int, seen: int, level: int) -> None:
        line = f"{bounds}: {depth} steps deep, {seen:,} states, {level:,} of them new"
        typer.echo(f"\r\033[K{line}" if sys.stderr.isatty() else line, nl=not sys.stderr.isatty(), err=True)

    result = search(reported)
    typer.echo(f" - {time.process_time() - began_s:,.1f} s of processor time", err=True)
    for number, step in enumerate(result.trace, 1):
        typer.echo(f"  {number:2}. {shown(step)}")
    end = "searched to the end" if result.exhausted else "not searched to the end"
    typer.echo(f"{bounds}: {result.violation or 'holds'}, {end}, {result.states:,} states, {result.depth} steps deep")
    if result.violation:
        raise typer.Exit(EXIT_REFUSED)
