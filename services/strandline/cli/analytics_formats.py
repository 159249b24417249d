"""Where `--format`, `--out`, `--catalog` and `--namespace` lead: to files, to tables of a session of our own, or to
tables of the session that spark-submit prepared.

Invariant: what cannot be written is refused before Spark starts, in one line; a given session is used as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from strandline_analytics.tables.formats import ResultFormat

if TYPE_CHECKING:
    from strandline_analytics.jobs.results import Results
    from strandline_analytics.scope import Grouping
    from strandline_analytics.session import Session
    from strandline_analytics.tables.names import TableNames

OWN_CATALOG = "strandline"
NAMESPACE = "results"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where results go, as it was asked for and checked."""

    kind: ResultFormat
    out: str | None
    catalog: str | None
    namespace: str
    settings: dict[str, str]
    """What the session needs, if it is our own."""

    def results(self, spark: Session, grouping: Grouping) -> Results:
        """The place for rows of closed hours."""
        if not self.kind.is_table:
            from strandline_analytics.jobs.parquet_results import ParquetResults

            assert self.out is not None
            return ParquetResults(spark, self.out, grouping)
        from strandline_analytics.tables.hours_in_tables import HoursInTables

        return HoursInTables(spark, self.kind, self.names(spark), grouping)

    def names(self, spark: Session) -> TableNames:
        """The names of tables; a catalog that was not named is the session's current one."""
        from strandline_analytics.tables.names import TableNames
        from strandline_analytics.tables.warehouse import warehouse_of

        if self.out is None:
            catalog = self.catalog or spark.catalog.currentCatalog()
            return TableNames(catalog=catalog, namespace=self.namespace)
        if self.kind is ResultFormat.DELTA:
            return TableNames(warehouse=warehouse_of(self.out), namespace=self.namespace)
        return TableNames(catalog=self.catalog, namespace=self.namespace)


def destination_of(
    kind: ResultFormat, *, out: str | None, catalog: str | None, namespace: str | None, is_given: bool
) -> Destination:
    """Check what was asked for.

    Args:
        kind: `--format`.
        out: `--out`; in a session of our own the place of files, or the warehouse of tables.
        catalog: `--catalog`.
        namespace: `--namespace`.
        is_given: whether the session is one that spark-submit prepared.

    Raises:
        typer.BadParameter: options that do not go together.
        typer.Exit: there is no runtime of the format for this PySpark.
    """
    if not kind.is_table and (catalog or namespace):
        raise typer.BadParameter("--catalog and --namespace are of tables: give --format iceberg or --format delta too")
    if kind.is_table and is_given:
        if out is not None:
            raise typer.BadParameter(
                f"--out: tables of --format {kind.value} lie where the session's catalog says; leave it out, and give "
                "--catalog for another catalog than its current one"
            )
        return Destination(kind=kind, out=None, catalog=catalog, namespace=namespace or NAMESPACE, settings={})
    if out is None:
        raise typer.BadParameter("--out is missing: the directory or URI of results")
    if not kind.is_table:
        return Destination(kind=kind, out=out, catalog=None, namespace=NAMESPACE, settings={})
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
