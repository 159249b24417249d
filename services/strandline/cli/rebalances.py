"""`strandline sim rebalances`: search every order of heartbeats, answers and losses between a group's members.

Invariant: exit code 1 means that two members held one partition (I28, I32).
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.failures import EXIT_REFUSED


def rebalances(
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="The highest group epoch.")] = 3,
    restarts: Annotated[int, typer.Option("--restarts", min=0, help="How often a member starts again.")] = 1,
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=3, help="Partitions that targets move.")] = 3,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search rebalances, the production core deciding: do two members of a group ever hold one partition?"""
    import sys
    import time

    from strandline.sim.rebalances import Bounds, search

    bounds = Bounds(epochs=epochs, restarts=restarts, partitions=partitions)
    began_s = time.process_time()

    def reported(depth: int, seen: int, level: int) -> None:
        line = f"{bounds}: {depth} steps deep, {seen:,} states, {level:,} of them new"
        typer.echo(f"\r\033[K{line}" if sys.stderr.isatty() else line, nl=not sys.stderr.isatty(), err=True)

    result = search(bounds, max_states=states, progress=reported)
    typer.echo(f" - {time.process_time() - began_s:,.1f} s of processor time", err=True)
    for number, name in enumerate(result.trace, 1):
        typer.echo(f"  {number:2}. {name}")
    end = "searched to the end" if result.exhausted else "not searched to the end"
    typer.echo(f"{bounds}: {result.violation or 'holds'}, {end}, {result.states:,} states, {result.depth} steps deep")
    if result.violation:
        raise typer.Exit(EXIT_REFUSED)
