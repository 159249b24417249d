"""Prints statistics: one table for each, a wide table with every column, or one document for programs.

Invariant: every form has every row; a table leaves out the cluster and window that its title states for all rows, ids
of topics that are named, the origin of the input, and counts of flaws that are all 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.durations import time_text
from strandline.cli.output import Column, Format, print_document, show
from strandline_analytics.commands.options import Shown
from strandline_analytics.tables import ResultFormat
from strandline_analytics.tables.destination import NAMESPACE, Destination

if TYPE_CHECKING:
    from strandline_analytics.stats.definition import Statistic


Answer = tuple["Statistic", list[dict[str, Any]]]
Absent = dict[str, Any]
"""The entry of a document for a statistic of which a cluster has no rows: id, cluster and reason (`UNAVAILABLE`)."""

UNAVAILABLE = "unavailable"
"""The key, in rows for programs, of the figures that were not recorded, with the reason for each."""
_TIMES = ("window_start", "window_end")
_ONLY_WIDE = ("stat", "topic_id", "input_manifest_hash", "code_version")
_SHARED = ("cluster_id", *_TIMES)
"""Columns that move to the title if all rows have the same values."""

_HEADING_WIDTH = 12

_FLAWS = ("n_zombie", "n_duplicate", "n_gap", "clock_regressions")


def show_answers(answers: Sequence[Answer], form: Shown, absent: Sequence[Absent] = ()) -> None:
    """Print the rows of statistics; a document ends with the absent ones, which a table does not show."""
    if form not in (Shown.TABLE, Shown.WIDE):
        print_document([*(_document(row) for _, rows in answers for row in rows), *absent], Format(form.value))
        return
    for number, (statistic, rows) in enumerate(answers):
        names = [name for name in rows[0] if name != UNAVAILABLE] if rows else []
        is_table = form is Shown.TABLE
        where = _shared(rows) if is_table else ""
        typer.echo(("\n" if number else "") + f"{statistic.id} {statistic.name}: {statistic.title}{where}")
        if is_table:
            said = _SHARED if where else ()
            names = [name for name in names if name not in said and _is_of_use(name, rows)]
        numbers = {name for row in rows for name, value in row.items() if isinstance(value, int | float)} - {*_TIMES}
        columns = [Column(name, _heading(name) if is_table else name, number=name in numbers) for name in names]
        show([_document(row) | _rounded(row) for row in rows], columns, Format.TABLE, empty="no rows")


def show_list(statistics: Sequence[Statistic], form: Shown) -> None:
    """Print the available statistics; wide, json and yaml list every column."""
    rows: list[dict[str, Any]] = [
        {
            "stat": one.id,
            "name": one.name,
            "title": one.title,
            "columns": [
                {"name": value.name, "type": value.type, "unit": value.unit, "meaning": value.meaning}
                for value in (*one.extra, *one.values)
            ],
        }
        for one in statistics
    ]
    if form not in (Shown.TABLE, Shown.WIDE):
        print_document(rows, Format(form.value))
    elif form is Shown.TABLE:
        show(rows, [Column(name, name) for name in ("stat", "name", "title")], Format.TABLE)
    else:
        wide = [{"stat": row["stat"], "statistic": row["name"]} | column for row in rows for column in row["columns"]]
        show(wide, [Column(name, name) for name in ("stat", "statistic", "name", "unit", "meaning")], Format.TABLE)


def who(row: dict[str, Any]) -> str:
    """The identity of a row, in one line."""
    parts = [row["stat"], row["cluster_id"]]
    if row.get("topic") is not None:
        parts.append(f"{row['topic']}-{row['partition']}" if "partition" in row else str(row["topic"]))
    return f"{' '.join(parts)} [{time_text(row['window_start'])}, {time_text(row['window_end'])})"


def _shared(rows: Sequence[dict[str, Any]]) -> str:
    """The cluster and the window if all rows have the same; otherwise empty."""
    shared = {(row["cluster_id"], row["window_start"], row["window_end"]) for row in rows}
    if len(shared) != 1:
        return ""
    ((cluster, start_us, end_us),) = shared
    return f" ({cluster}, {time_text(start_us)} to {time_text(end_us)})"


def _heading(name: str) -> str:
    """A column's name, broken after underscores into as many lines as keep it narrow."""
    lines = [""]
    for part in re.findall(r"[^_]*_|[^_]+", name):
        if lines[-1] and len(lines[-1] + part) > _HEADING_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _is_of_use(name: str, rows: Sequence[dict[str, Any]]) -> bool:
    return name not in _ONLY_WIDE and (name not in _FLAWS or any(row[name] for row in rows))


def _document(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: time_text(row[name]) for name in _TIMES if name in row}


def _rounded(row: dict[str, Any]) -> dict[str, str]:
    return {name: f"{value:,.4f}".rstrip("0").rstrip(".") for name, value in row.items() if isinstance(value, float)}


# ---- analytics_formats
# Turns `--format`, `--out`, `--catalog` and `--namespace` into a destination, and refuses contradictory ones.
#
# Invariant: what cannot be written is refused before Spark starts, in one line; a given session is used as it is.

OWN_CATALOG = "strandline"

FormatOption = Annotated[
    ResultFormat,
    typer.Option("--format", help="Parquet files, or tables by a runtime that Spark takes from Maven."),
]
Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog", metavar="NAME", help="For tables: strandline, or with spark-submit the session's current one."
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Name of tables: CATALOG.NAMESPACE.s10_isr_time.")
]


def destination_of(
    kind: ResultFormat,
    *,
    out: str | None,
    catalog: str | None,
    namespace: str | None,
    is_given: bool,
    option: str = "--out",
) -> Destination:
    """The destination that the options name, checked.

    Args:
        kind: `--format`.
        out: the place of files, or the warehouse of tables in a session of our own.
        catalog: `--catalog`.
        namespace: `--namespace`.
        is_given: whether the session is one that spark-submit prepared.
        option: the name of the option for ``out``.

    Raises:
        typer.BadParameter: options that do not go together.
        typer.Exit: there is no runtime of the format for this PySpark.
    """
    if not kind.is_table and (catalog or namespace):
        raise typer.BadParameter("--catalog and --namespace are of tables: give --format iceberg or --format delta too")
    if kind.is_table and is_given:
        if out is not None:
            raise typer.BadParameter(
                f"{option}: tables of --format {kind.value} lie where the session's catalog says; leave it out, and "
                "give --catalog for another catalog than its current one"
            )
        return Destination(kind=kind, out=None, catalog=catalog, namespace=namespace or NAMESPACE)
    if out is None:
        raise typer.BadParameter(f"{option} is missing: the directory or URI of results")
    if not kind.is_table:
        return Destination(kind=kind, out=out)
    if kind is ResultFormat.DELTA and catalog:
        raise typer.BadParameter(
            "--catalog: a session of our own names tables of --format delta by their places; leave it out, or use "
            "spark-submit with a catalog"
        )
    return _own_tables(kind, out, catalog or OWN_CATALOG, namespace or NAMESPACE)


def _own_tables(kind: ResultFormat, out: str, catalog: str, namespace: str) -> Destination:
    from strandline_analytics.commands.progress import failures_reported
    from strandline_analytics.tables.runtimes import runtime_for, settings
    from strandline_analytics.tables.statements import warehouse_of

    with failures_reported():
        runtime = runtime_for(kind)
    needed = settings(runtime, catalog=catalog, warehouse=warehouse_of(out))
    return Destination(kind=kind, out=out, catalog=catalog, namespace=namespace, settings=needed)
