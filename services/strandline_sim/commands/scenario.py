"""`strandline scenario ...`: replication incidents, played by the production cores and compared line by line.

Invariant: exit code 0 means that every file came true; 1 that one did not, and the line says where, what was
expected and what is; 2 that a file cannot be read, as text or as a scenario, or written.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, explain, fail
from strandline.cli.options import Output
from strandline.cli.output import Column, Format, show

app = typer.Typer(help="Play an incident step by step, from a text file.", no_args_is_help=True)


@app.callback()
def scenario() -> None:
    """Play an incident step by step, from a text file."""


@app.command("list")
def list_shipped(output: Output = Format.TABLE) -> None:
    """List the scenarios that come with Strandline: the traces and edge cases of the replication protocol."""
    from strandline_sim.scenario.language import shipped, title

    rows = [{"name": path.stem, "shows": title(path)} for path in shipped()]
    show(rows, (Column("name", "name"), Column("shows", "shows")), output)


@app.command()
def run(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Scenario files, or names of `strandline scenario list`.")
    ],
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Write the output into the files; expectations must still hold.")
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Print every event and effect of every core.")] = False,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="DIR", help="Write the state events, as nodes do, per file.")
    ] = None,
) -> None:
    """Run scenario files on the production cores and a virtual clock. No cluster, no network, no waiting."""
    worst = 0
    from strandline_sim.scenario.language import find

    files = [find(file) for file in files]
    folders = _folders(export, files) if export is not None else [None] * len(files)
    for file, folder in zip(files, folders, strict=True):
        try:
            typer.echo(_run(file, rewrite=rewrite, trace=trace, export=folder))
        except CommandFailed as failure:
            worst = max(worst, fail(failure).exit_code)
    raise typer.Exit(worst)


def _folders(export: Path, files: list[Path]) -> list[Path]:
    """A folder for each file, below ``export`` whatever the names of the files are; equal names are numbered."""
    if len(files) == 1:
        return [export]
    folders: list[Path] = []
    for file in files:
        name = file.name if file.stem in ("", ".", "..") else file.stem
        choices = (export / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
        folders.append(next(folder for folder in choices if folder not in folders))
    return folders


def _run(file: Path, *, rewrite: bool, trace: bool, export: Path | None) -> str:
    """Run one file. Returns the line that says how it went.

    Raises:
        CommandFailed: it did not come true, or cannot be read or written.
    """
    from strandline_sim.scenario.language import NotReadable, ScenarioFailed
    from strandline_sim.scenario.run import run_file

    try:
        transcript = run_file(file, rewrite=rewrite, export=export, trace=typer.echo if trace else None)
    except NotReadable as failed:
        raise CommandFailed(str(failed), EXIT_UNREACHABLE) from failed
    except ScenarioFailed as failed:
        raise CommandFailed(str(failed), EXIT_REFUSED) from failed
    except OSError as error:
        raise explain(error) or CommandFailed(f"{file}: {error.strerror}", EXIT_UNREACHABLE) from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file}: it is not UTF-8 text", EXIT_UNREACHABLE) from error
    count = len(transcript.outputs)
    return f"{file}: {count} commands, {'written again' if rewrite else 'all as expected'}"
