"""How tables are made fit for rows in a session, and how a session without a runtime is recognized.

Invariant: what a session lacks ends in one line that names the pairs that work, not in an error of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline_analytics.sources.trouble import InputTrouble
from strandline_analytics.stats.definition import Value
from strandline_analytics.tables import statements
from strandline_analytics.tables.formats import ResultFormat
from strandline_analytics.tables.runtimes import NoRuntime, pairs

_WITHOUT_RUNTIME = (
    "CATALOG_NOT_FOUND",
    "CANNOT_LOAD_CATALOG",
    "Cannot find catalog plugin class",
    "DATA_SOURCE_NOT_FOUND",
    "MISSING_CATALOG_ABILITY",
    "Failed to find the data source",
    "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG",
    "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE",
    "UNSUPPORTED_FEATURE.TABLE_OPERATION",
)
"""What Spark and Delta say where a runtime, its extension or its catalog is not set up."""
_NO_TABLE = "DELTA_TABLE_NOT_FOUND"
_DETAILS = "# Detailed Table Information"
"""The line of a table's description after which its own properties come."""


class OtherFiles(InputTrouble):
    """Something else than a table lies where a table is to be."""


class OtherFormat(InputTrouble):
    """A table of the catalog has the name of ours, and another format."""


def set_up(
    spark: SparkSession,
    kind: ResultFormat,
    namespace: str | None,
    tables: Mapping[str, tuple[str, Sequence[Value]]],
) -> None:
    """Make tables that are not there, and add columns that are new.

    Args:
        spark: any session.
        kind: a format of tables.
        namespace: quoted; None: there is none to make.
        tables: comments and columns, by quoted names.

    Raises:
        NoRuntime: the session has no runtime of the format, or no such catalog.
        OtherColumns: a table has other columns.
        OtherFiles: no table can be made where one is to be.
        OtherFormat: the catalog has a table of the name in another format.
    """
    try:
        if namespace is not None:
            spark.sql(statements.create_namespace(namespace))
            _check_formats(spark, kind, tables)
        for table, (comment, columns) in tables.items():
            spark.sql(statements.create_table(table, columns, kind, comment))
    except PySparkException as error:
        text = str(error)
        if any(mark in text for mark in _WITHOUT_RUNTIME):
            first = text.splitlines()[0]
            raise NoRuntime(
                f"--format {kind.value}: this session has no runtime or catalog for it ({first}). Give both to "
                f"spark-submit, by --packages and --conf; these pairs work: {pairs()}"
            ) from error
        raise
    for table, (_, columns) in tables.items():
        added = statements.add_columns(table, columns, _columns_of(spark, table))
        if added is not None:
            spark.sql(added)


def _check_formats(spark: SparkSession, kind: ResultFormat, tables: Iterable[str]) -> None:
    """Refuse a table of another format. One that is named by its place has the format in its name."""
    for table in tables:
        provider = provider_of(spark, table)
        if provider not in (None, kind.value):
            raise OtherFormat(
                f"{table} is a table of provider {provider}, and --format {kind.value} was asked for: give another "
                "--namespace, or rename or drop that table"
            )


def provider_of(spark: SparkSession, table: str) -> str | None:
    """The format of a table as its catalog names it, in lower case; None: there is no such table, or it has no name.

    Args:
        spark: any session.
        table: quoted.
    """
    # A description of a table that is not there would be reported by PySpark's own log.
    if not spark.catalog.tableExists(table):
        return None
    said = spark.sql(statements.describe_table(table)).collect()
    # Columns come first, and one of them may be called Provider.
    names = [row["col_name"] for row in said]
    details = said[names.index(_DETAILS) :] if _DETAILS in names else []
    return next((row["data_type"].lower() for row in details if row["col_name"] == "Provider"), None)


def _columns_of(spark: SparkSession, table: str) -> dict[str, str]:
    try:
        return {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
    except PySparkException as error:
        # Delta takes any directory with files for a table that is there, so it makes none in it.
        if _NO_TABLE not in str(error):
            raise
        raise OtherFiles(
            f"{table} has files and is no table of Delta, perhaps one of --format iceberg: give another --out or "
            "--namespace"
        ) from error
