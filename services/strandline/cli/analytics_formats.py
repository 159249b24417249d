"""Where `--format`, `--out`, `--catalog` and `--namespace` lead, and which of them do not go together.

Invariant: what cannot be written is refused before Spark starts, in one line; a given session is used as it is.
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline_analytics.tables.destination import NAMESPACE, Destination
from strandline_analytics.tables.formats import ResultFormat

OWN_CATALOG = "strandline"

FormatOption = Annotated[
    ResultFormat,
    typer.Option("--format", help="Parquet files, or tables by a runtime that Spark takes from Maven."),
]
Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog", metavar="NAME", help="Of tables: strandline, or with spark-submit the session's current one."
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Of tables: CATALOG.NAMESPACE.s10_isr_time.")
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
    """Check what was asked for.

    Args:
        kind: `--format`.
        out: in a session of our own the place of files, or the warehouse of tables.
        catalog: `--catalog`.
        namespace: `--namespace`.
        is_given: whether the session is one that spark-submit prepared.
        option: what ``out`` is called.

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
    from strandline.cli.analytics_session import failures_reported
    from strandline_analytics.tables.runtimes import runtime_for, settings
    from strandline_analytics.tables.warehouse import warehouse_of

    with failures_reported():
        runtime = runtime_for(kind)
    needed = settings(runtime, catalog=catalog, warehouse=warehouse_of(out))
    return Destination(kind=kind, out=out, catalog=catalog, namespace=namespace, settings=needed)
