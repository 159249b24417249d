"""How a search of every order of steps in a small world is shown, and its exit code.

Invariant: exit code 1 means that a rule does not hold, and then the steps to the world that breaks it are printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from strandline.cli.failures import EXIT_REFUSED

if TYPE_CHECKING:
    from strandline_sim.searches.breadth_first import Progress, Result


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


# ---- elections
# `strandline sim elections`: search every order of crashes, returns and reports around one lost directory.
#
# Invariant: exit code 1 means that an elected leader lacked a committed record, or that nobody was elected although all
# had reported.


def elections(
    records: Annotated[int, typer.Option("--records", min=1, help="Total number of appends.")] = 1,
    epochs: Annotated[int, typer.Option("--epochs", min=0, metavar="E", help="Leader epochs 0..E.")] = 1,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search elections after losses, the production controller deciding: does a leader ever lack what was committed?"""
    from strandline_sim.searches.elections import Bounds, search
    from strandline_sim.searches.elections.world import State

    def shown(step: tuple[str, State]) -> str:
        name, state = step
        logs = " ".join(str(list(replica.log)) for replica in state.replicas)
        return f"{name:70} logs {logs}, committed {list(state.committed)}"

    bounds = Bounds(records, epochs)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress), shown)


# ---- reigns
# `strandline sim reigns`: search every order of answers, losses and pauses between two controllers and their store.
#
# Invariant: exit code 1 means that an invariant of reigns (I19 to I22, I41) does not hold.


def reigns(
    transactions: Annotated[int, typer.Option("--transactions", min=1, help="Transactions in all.")] = 2,
    campaigns: Annotated[int, typer.Option("--campaigns", min=1, help="How often the election key is put.")] = 2,
    endings: Annotated[int, typer.Option("--endings", min=0, help="Leases that end early or late.")] = 1,
    takings: Annotated[int, typer.Option("--takings", min=0, help="Keys taken or handed over.")] = 0,
    late: Annotated[int, typer.Option("--late", min=0, help="Writes without an answer that may come late.")] = 0,
    restores: Annotated[
        int, typer.Option("--restores", min=0, max=1, help="Stores put back, with the controllers' files lost.")
    ] = 0,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search reigns, the production core deciding: does a controller ever write, or begin, where another one reigns?"""
    from strandline_sim.searches.reigns import Bounds, search

    bounds = Bounds(transactions, campaigns, endings, takings, late, restores)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress))


# ---- rebalances
# `strandline sim rebalances`: search every order of heartbeats, answers and losses between a group's members.
#
# Invariant: exit code 1 means that two members held one partition (I28, I32).


def rebalances(
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="The highest group epoch.")] = 3,
    restarts: Annotated[int, typer.Option("--restarts", min=0, help="How often a member starts again.")] = 1,
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=3, help="Partitions that targets move.")] = 3,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search rebalances, the production core deciding: do two members of a group ever hold one partition?"""
    from strandline_sim.searches.rebalances import Bounds, search

    bounds = Bounds(epochs=epochs, restarts=restarts, partitions=partitions)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress))


# ---- transactions
# `strandline sim transactions`: search every order of batches, questions, markers and time-outs of a producer.
#
# Invariant: exit code 1 means that a transaction was torn, read before it was decided, or not ended (I36 to I38, L13).


def transactions(
    transactions: Annotated[int, typer.Option("--transactions", min=1, help="How many the producer begins.")] = 2,
    mishaps: Annotated[
        int,
        typer.Option("--mishaps", min=0, help="Late copies, deadlines, deaths of leaders and coordinators, in total."),
    ] = 1,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search transactions over two partitions, the production core deciding: is each one ended whole, everywhere?"""
    from strandline_sim.searches.transactions import Bounds, search

    bounds = Bounds(transactions=transactions, mishaps=mishaps)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress))
