"""`strandline sim reigns`: search every order of answers, losses and pauses between two controllers and their store.

Invariant: exit code 1 means that an invariant of reigns (I19 to I22) does not hold.
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.failures import EXIT_REFUSED


def reigns(
    transactions: Annotated[int, typer.Option("--transactions", min=1, help="Transactions in all.")] = 2,
    campaigns: Annotated[int, typer.Option("--campaigns", min=1, help="How often the election key is put.")] = 2,
    endings: Annotated[int, typer.Option("--endings", min=0, help="Leases that end early or late.")] = 1,
    takings: Annotated[int, typer.Option("--takings", min=0, help="Keys taken or handed over.")] = 0,
    late: Annotated[int, typer.Option("--late", min=0, help="Writes without an answer that may come late.")] = 0,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search reigns, the production core deciding: does a controller ever write, or begin, where another one reigns?"""
    import sys
    import time

    from strandline.sim.reigns import Bounds, search

    bounds = Bounds(transactions, campaigns, endings, takings, late)
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
