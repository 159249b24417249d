"""`strandline sim elections`: search every order of crashes, returns and reports around one lost directory.

Invariant: exit code 1 means that an elected leader lacked a committed record, or that nobody was elected although all
had reported.
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.failures import EXIT_REFUSED


def elections(
    records: Annotated[int, typer.Option("--records", min=1, help="Total number of appends.")] = 1,
    epochs: Annotated[int, typer.Option("--epochs", min=0, metavar="E", help="Leader epochs 0..E.")] = 1,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search elections after losses, the production controller deciding: does a leader ever lack what was committed?"""
    import sys
    import time

    from strandline.sim.elections import Bounds, search

    bounds = Bounds(records, epochs)
    began_s = time.process_time()

    def reported(depth: int, seen: int, level: int) -> None:
        line = f"{bounds}: {depth} steps deep, {seen:,} states, {level:,} of them new"
        typer.echo(f"\r\033[K{line}" if sys.stderr.isatty() else line, nl=not sys.stderr.isatty(), err=True)

    result = search(bounds, max_states=states, progress=reported)
    typer.echo(f" - {time.process_time() - began_s:,.1f} s of processor time", err=True)
    for number, (name, state) in enumerate(result.trace, 1):
        logs = " ".join(str(list(replica.log)) for replica in state.replicas)
        typer.echo(f"  {number:2}. {name:70} logs {logs}, committed {list(state.committed)}")
    end = "searched to the end" if result.exhausted else "not searched to the end"
    typer.echo(f"{bounds}: {result.violation or 'holds'}, {end}, {result.states:,} states, {result.depth} steps deep")
    if result.violation:
        raise typer.Exit(EXIT_REFUSED)
