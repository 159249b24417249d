"""How a search of every order of steps in a small world is shown, and its exit code.

Invariant: exit code 1 means that a rule does not hold, and then the steps to the world that breaks it are printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import typer

from strandline.cli.failures import EXIT_REFUSED


class Found(Protocol):
    """What a search found: `sim.reigns`, `sim.rebalances` and `sim.transactions` have a class of their own each."""

    @property
    def states(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def exhausted(self) -> bool: ...
    @property
    def violation(self) -> str: ...
    @property
    def trace(self) -> Sequence[str]: ...


Progress = Callable[[int, int, int], None]
"""Called with the depth reached, the states seen, and those of them at this depth."""


def show(bounds: object, search: Callable[[Progress], Found]) -> None:
    """Run ``search``, report on stderr how far it is, and print what it found.

    Raises:
        typer.Exit: with code 1, a rule does not hold.
    """
    began_s = time.process_time()

    def reported(depth: int, seen: int, level: int) -> None:
        line = f"{bounds}: {depth} steps deep, {seen:,} states, {level:,} of them new"
        typer.echo(f"\r\033[K{line}" if sys.stderr.isatty() else line, nl=not sys.stderr.isatty(), err=True)

    result = search(reported)
    typer.echo(f" - {time.process_time() - began_s:,.1f} s of processor time", err=True)
    for number, name in enumerate(result.trace, 1):
        typer.echo(f"  {number:2}. {name}")
    end = "searched to the end" if result.exhausted else "not searched to the end"
    typer.echo(f"{bounds}: {result.violation or 'holds'}, {end}, {result.states:,} states, {result.depth} steps deep")
    if result.violation:
        raise typer.Exit(EXIT_REFUSED)
