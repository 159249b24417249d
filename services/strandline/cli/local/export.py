"""`strandline export ...`: verify that exported state is complete, merge it by hour, recover it after a kill.

Invariant: exit code 1 means that something is missing without a reported gap, or differs from its manifest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.durations import Duration, duration_option, read_duration, time_text
from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, fail
from strandline.cli.options import Output
from strandline.cli.output import NUMBER, TEXT, Column, Format, plain_columns, show

if TYPE_CHECKING:
    from strandline.export.destination import Destination
    from strandline.export.verify import IncarnationFound, Verified

app = typer.Typer(help="Verify, compact and recover exported state events.", no_args_is_help=True)

Place = Annotated[str, typer.Argument(metavar="DIR|URI", help="The services' export_dir or export_uri.")]

_COLUMNS = [
    *plain_columns(cluster=TEXT, node=NUMBER, incarnation=NUMBER, rows=NUMBER, last_seq=NUMBER, coverage=NUMBER),
    Column("from", "from"),
    *plain_columns(to=TEXT, verdict=TEXT),
]


@app.command()
def verify(place: Place, output: Output = Format.TABLE) -> None:
    """Check hashes against manifests, and that the numbers of every incarnation have no unreported gap."""
    from strandline.export.verify import verify as verified

    with _exported(place) as (destination, clusters):
        found = [verified(destination, cluster) for cluster in clusters]
    show([_row(one.cluster_id, part) for one in found for part in one.incarnations], _COLUMNS, output)
    if output is Format.TABLE:
        for one in found:
            _tell(one)
    if not all(one.is_sound for one in found):
        raise typer.Exit(EXIT_REFUSED)


@app.command()
def compact(
    place: Place,
    grace: Annotated[
        Duration, duration_option("--grace", help="Do not touch an hour until this time after its end.")
    ] = read_duration("15m"),
    output: Output = Format.TABLE,
) -> None:
    """Replace the files of every closed hour by one for each dataset."""
    from strandline.export import layout
    from strandline.export.compact import Unsound, compact as compacted

    before_hour = layout.hour_of(time.time_ns() // 1_000 - grace.us)
    try:
        with _exported(place) as (destination, clusters):
            done = [
                {
                    "cluster": cluster,
                    "dataset": one.dataset,
                    "hour": one.hour_path,
                    "files": one.files_before,
                    "now": one.files_after,
                    "rows": one.rows,
                }
                for cluster in clusters
                for one in compacted(destination, cluster, before_hour=before_hour)
            ]
    except Unsound as error:
        raise fail(CommandFailed(f"{error}; see: strandline export verify {place}", EXIT_REFUSED)) from error
    show(done, plain_columns(cluster=TEXT, dataset=TEXT, hour=TEXT, files=TEXT, now=TEXT, rows=TEXT), output)


@app.command()
def recover(
    data_dir: Annotated[Path, typer.Argument(metavar="DATA_DIR", help="The data directory of the killed process.")],
    place: Place,
    kind: Annotated[str, typer.Option("--format", metavar="parquet|jsonl", help="Format of the files.")] = "parquet",
) -> None:
    """Export the events that a killed process left in the spool of its data directory."""
    from strandline.export.encoding import ExportFormat
    from strandline.export.files import StillRuns, recover as recovered

    if kind not in [*ExportFormat]:
        raise typer.BadParameter(f"--format: {kind!r} is none of: {', '.join(ExportFormat)}")
    if not data_dir.is_dir():
        raise typer.BadParameter(f"DATA_DIR: {data_dir} is not a directory")
    try:
        files = recovered(data_dir, _open(place), ExportFormat(kind), lambda said: typer.echo(said, err=True))
    except StillRuns as error:
        raise fail(CommandFailed(f"{error} and exports its events itself: stop it, or wait", EXIT_REFUSED)) from error
    except OSError as error:
        said = f"{place} does not take the files, and they stay in the spool: {error}"
        raise fail(CommandFailed(said, EXIT_UNREACHABLE)) from error
    typer.echo(f"{files} files exported" if files else f"nothing is left in the spool of {data_dir}")


def _row(cluster_id: str, found: IncarnationFound) -> dict[str, Any]:
    return {
        "cluster": cluster_id,
        "node": found.node_id,
        "incarnation": found.incarnation,
        "rows": found.rows,
        "last_seq": found.last_seq,
        "coverage": f"{found.coverage:.4f}",
        "from": time_text(found.first_us),
        "to": time_text(found.last_us),
        "missing": [list(hole) for hole in found.missing],
        "verdict": found.completeness.value,
    }


def _tell(found: Verified) -> None:
    typer.echo(f"{found.cluster_id}: {found.files} files, {found.rows} rows, {found.doubles} doubles")
    for line in found.wrong:
        typer.echo(f"wrong: {line}")
    for path in found.unproven:
        typer.echo(f"without manifest: {path}")
    for part in found.incarnations:
        holes = ", ".join(f"{first}-{last}" for first, last in part.missing)
        if holes:
            who = f"node {part.node_id} incarnation {part.incarnation}"
            typer.echo(
                f"{who} lacks seq {holes}: {part.missing_count} events, {part.reported} of them reported as dropped"
            )


def _open(place: str) -> Destination:
    from strandline.export.destination import open_destination

    try:
        return open_destination(place)
    except (ValueError, OSError) as error:
        raise fail(CommandFailed(str(error), EXIT_UNREACHABLE)) from error


@contextmanager
def _exported(place: str) -> Iterator[tuple[Destination, list[str]]]:
    """The destination and the clusters in it; a failure to read there ends the command with one line."""
    from strandline.export.reading import clusters

    destination = _open(place)
    try:
        if not (found := clusters(destination)):
            raise FileNotFoundError(f"nothing is exported in {place}: no CLUSTER_ID/v1 folder is there")
        yield destination, found
    except OSError as error:
        raise fail(CommandFailed(f"{place} cannot be read: {error}", EXIT_UNREACHABLE)) from error
