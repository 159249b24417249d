"""`strandline sim transactions`: search every order of batches, questions, markers and time-outs of a producer.

Invariant: exit code 1 means that a transaction was torn, read before it was decided, or not ended (I36 to I38, L13).
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.failures import EXIT_REFUSED


def transactions(
    transactions: Annotated[int, typer.Option("--transactions", min=1, help="How many the producer begins.")] = 2,
    mishaps: Annotated[
        int,
        typer.Option("--mishaps", min=0, help="Late copies, deadlines, deaths of leaders and coordinators, in total."),
    ] = 1,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search transactions over two partitions, the production core deciding: is each one ended whole, everywhere?"""
    import sys
    import time

    from strandline.sim.transactions import Bounds, search

    bounds = Bounds(transactions=transactions, mishaps=mishaps)
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
