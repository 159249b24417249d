"""Shows a search of every order of steps in a small world, and sets its exit code.

Invariant: exit code 1 means that a rule does not hold, and then the steps to the world that breaks it are printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli import output
from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, fail

if TYPE_CHECKING:
    from strandline_sim.searches.breadth_first import Progress, Result
    from strandline_sim.searches.elections.world import ElectionState
    from strandline_sim.searches.exhaust.variants import Model


def progress_of(title: str) -> Progress:
    """Reports each level of a search on stderr."""

    def reported(depth: int, states: int, level: int) -> None:
        line = f"{title}: {depth} steps deep, {states:,} states, {level:,} of them new"
        typer.echo(f"\r\033[K{line}" if sys.stderr.isatty() else line, nl=not sys.stderr.isatty(), err=True)

    return reported


def show(bounds: object, search: Callable[[Progress], Result[Any, Any]], shown: Callable[[Any], str] = str) -> None:
    """Run ``search``, report its progress on stderr, and print its findings, each step as ``shown``.

    Raises:
        typer.Exit: with code 1, a rule does not hold.
    """
    began_s = time.process_time()
    result = search(progress_of(str(bounds)))
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
# Invariant: exit code 1 means that an elected leader lacked a committed record, or that no leader was elected although
# all had reported.


def elections(
    records: Annotated[int, typer.Option("--records", min=1, help="Total number of appends.")] = 1,
    epochs: Annotated[int, typer.Option("--epochs", min=0, metavar="E", help="Leader epochs 0..E.")] = 1,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search elections after losses, the production controller deciding: does a leader ever lack what was committed?"""
    from strandline_sim.searches.elections import ElectionBounds, search

    bounds = ElectionBounds(records, epochs)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress), _election_step)


def _election_step(step: tuple[str, ElectionState]) -> str:
    name, state = step
    logs = " ".join(str(list(replica.log)) for replica in state.replicas)
    return f"{name:70} logs {logs}, committed {list(state.committed)}"


# ---- reassignments
# `strandline sim reassignments`: search every order of targets, cancels, elections and lost answers of one partition.
#
# Invariant: exit code 1 means that I25 does not hold, or that a leader lacked a committed record.


def reassignments(
    records: Annotated[int, typer.Option("--records", min=1, help="Total number of appends.")] = 1,
    epochs: Annotated[int, typer.Option("--epochs", min=0, metavar="E", help="Leader epochs 0..E.")] = 1,
    replicas: Annotated[int, typer.Option("--replicas", min=1, max=3, help="Replicas at the start, of 3 nodes.")] = 2,
    target: Annotated[
        list[int] | None, typer.Option("--target", min=1, max=3, help="Replicas of a target; repeatable; default 2.")
    ] = None,
    min_isr: Annotated[int, typer.Option("--min-isr", min=1, help="min.insync.replicas.")] = 1,
    raised: Annotated[int, typer.Option("--raised", min=0, help="Values that min.insync.replicas may get.")] = 0,
    lost: Annotated[int, typer.Option("--lost-answers", min=0, help="Answers to proposals that are lost.")] = 0,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search reassignments, the production controller deciding: is a place, a copy or a committed record ever lost?"""
    from strandline_sim.searches.elections import moving, search

    bounds = moving(records, epochs, replicas, tuple(target or (2,)), min_isr, raised_min_isr=raised, lost_answers=lost)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress), _election_step)


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
    from strandline_sim.searches.reigns import ReignBounds, search

    bounds = ReignBounds(transactions, campaigns, endings, takings, late, restores)
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
    from strandline_sim.searches.rebalances import RebalanceBounds, search

    bounds = RebalanceBounds(epochs=epochs, restarts=restarts, partitions=partitions)
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
    from strandline_sim.searches.transactions import TransactionBounds, search

    bounds = TransactionBounds(transactions=transactions, mishaps=mishaps)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress))


# ---- exhaust
# `strandline sim exhaust`: search small worlds to their end, and compare with what was published.
#
# Invariant: exit code 1 means that a safe set of rules was broken, or that a published violation was not found.

COLUMNS = (
    output.Column("model", "model"),
    output.Column("bounds", "bounds"),
    output.Column("property", "property"),
    output.Column("found", "found"),
    output.Column("published", "published"),
    output.Column("states", "states", number=True),
    output.Column("rate", "states/s", number=True),
)


def exhaust(
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", metavar="NAME", help="A model; repeatable.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every model.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Print the shortest traces in words.")] = False,
    records: Annotated[int | None, typer.Option("--records", min=1, help="Other bounds than the model's.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=0, metavar="E", help="Epochs 0..E.")] = None,
    form: Annotated[
        output.Format, typer.Option("--output", "-o", help="table, json, yaml or csv.")
    ] = output.Format.TABLE,
) -> None:
    """Search every state of a small cluster of production cores; find what historic rules lose."""
    from strandline_sim.searches.exhaust.words import tell

    rows: list[dict[str, Any]] = []
    sound = True
    for each in _chosen(model, everything, records, epochs):
        result, seconds = _searched(each)
        rows += _rows(each, result, seconds)
        sound = sound and _is_as_expected(each, result)
        for found in result.found.values() if trace else ():
            typer.echo(f"{each.name}: {found.broken}, {found.length} steps")
            for number, line in enumerate(tell(found, result.model.space), 1):
                typer.echo(f"  {number:2}. {line}" if number <= found.length else f"      {line}")
    output.show(rows, COLUMNS, form)
    if not sound:
        raise typer.Exit(EXIT_REFUSED)


def _chosen(names: list[str] | None, everything: bool, records: int | None, epochs: int | None) -> list[Model]:
    from strandline_sim.searches.exhaust.variants import MODELS

    if everything:
        names = [each.name for each in MODELS]
    known = {each.name: each for each in MODELS}
    unknown = [name for name in names or [""] if name not in known]
    if unknown:
        raise fail(CommandFailed(f"no model {unknown[0]!r}; there are: {', '.join(known)}", EXIT_UNREACHABLE))
    chosen = []
    for name in names or []:
        bounds = known[name].bounds
        bounds = replace(
            bounds,
            records=bounds.records if records is None else records,
            max_leader_epoch=bounds.max_leader_epoch if epochs is None else epochs,
        )
        chosen.append(replace(known[name], bounds=bounds))
    return chosen


def _searched(model: Model) -> tuple[Result[Any, Any], float]:
    """The result of a search, and its duration in seconds."""
    from strandline_sim.searches.exhaust.space import search
    from strandline_sim.searches.exhaust.variants import VARIANTS

    began_s = time.monotonic()
    progress = progress_of(f"{model.name} ({model.bounds})")
    result = search(VARIANTS[model.variant], model.bounds, model.published, progress=progress)
    seconds = time.monotonic() - began_s
    typer.echo(f" - {seconds:,.1f} s", err=True)
    return result, seconds


def _rows(model: Model, result: Result[Any, Any], seconds: float) -> list[dict[str, Any]]:
    return [
        {
            "model": model.name,
            "bounds": str(model.bounds),
            "property": str(name),
            "found": _found(result, name),
            "published": "holds" if length is None else f"{length} steps",
            "states": result.states,
            "rate": round(result.states / max(seconds, 0.001)),
            "seconds": round(seconds, 1),
        }
        for name, length in model.published.items()
    ]


def _found(result: Result[Any, Any], name: Any) -> str:
    if name in result.found:
        return f"{result.found[name].length} steps"
    return "holds" if result.exhausted else "not found"


def _is_as_expected(model: Model, result: Result[Any, Any]) -> bool:
    from strandline_sim.searches.exhaust.local import Property

    lengths = {Property(name): found.length for name, found in result.found.items()}
    return model.is_as_published(lengths) and not (result.model.variant.safe and result.found)
