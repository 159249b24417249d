"""`strandline sim exhaust`: search small worlds to their end, and compare with what was published.

Invariant: exit code 1 means that a safe set of rules was broken, or that a published violation was not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, fail
from strandline.cli.output import Column, Format, show

if TYPE_CHECKING:
    from strandline_sim.searches.exhaust.search import Progress, Result
    from strandline_sim.searches.exhaust.variants import Model

COLUMNS = (
    Column("model", "model"),
    Column("bounds", "bounds"),
    Column("property", "property"),
    Column("found", "found"),
    Column("published", "published"),
    Column("states", "states", number=True),
    Column("rate", "states/s", number=True),
)

Output = Annotated[Format, typer.Option("--output", "-o", help="table, json, yaml or csv.")]


def exhaust(
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", metavar="NAME", help="A model; repeatable.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every model.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Print the shortest traces in words.")] = False,
    records: Annotated[int | None, typer.Option("--records", min=1, help="Other bounds than the model's.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=0, metavar="E", help="Epochs 0..E.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Search every state of a small cluster of production cores; find what historic rules lose."""
    from strandline_sim.searches.exhaust.words import tell

    rows: list[dict[str, Any]] = []
    sound = True
    for each in _chosen(model, everything, records, epochs):
        result = _searched(each)
        rows += _rows(each, result)
        sound = sound and _is_as_expected(each, result)
        for found in result.found.values() if trace else ():
            typer.echo(f"{each.name}: {found.broken}, {found.length} steps")
            for number, line in enumerate(tell(found, result.space), 1):
                typer.echo(f"  {number:2}. {line}" if number <= found.length else f"      {line}")
    show(rows, COLUMNS, output)
    if not sound:
        raise typer.Exit(EXIT_REFUSED)


def _chosen(names: list[str] | None, everything: bool, records: int | None, epochs: int | None) -> list[Model]:
    from dataclasses import replace

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


def _searched(model: Model) -> Result:
    import time

    from strandline_sim.searches.exhaust.search import search
    from strandline_sim.searches.exhaust.variants import VARIANTS

    result = search(
        VARIANTS[model.variant], model.bounds, model.published, progress=_progress(model), clock=time.monotonic
    )
    typer.echo(f" - {result.seconds:,.1f} s", err=True)
    return result


def _progress(model: Model) -> Progress:
    import sys

    def reported(depth: int, states: int, level: int) -> None:
        line = f"{model.name} ({model.bounds}): {depth} steps deep, {states:,} states, {level:,} of them new"
        typer.echo(f"\r\033[K{line}" if sys.stderr.isatty() else line, nl=not sys.stderr.isatty(), err=True)

    return reported


def _rows(model: Model, result: Result) -> list[dict[str, Any]]:
    return [
        {
            "model": model.name,
            "bounds": str(model.bounds),
            "property": str(name),
            "found": _found(result, name),
            "published": "holds" if length is None else f"{length} steps",
            "states": result.states,
            "rate": round(result.states / max(result.seconds, 0.001)),
            "seconds": round(result.seconds, 1),
        }
        for name, length in model.published.items()
    ]


def _found(result: Result, name: Any) -> str:
    if name in result.found:
        return f"{result.found[name].length} steps"
    return "holds" if result.exhausted else "not found"


def _is_as_expected(model: Model, result: Result) -> bool:
    lengths = {name: found.length for name, found in result.found.items()}
    return model.is_as_published(lengths) and not (result.variant.safe and result.violation is not None)
