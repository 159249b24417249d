"""Writes the statements that prepare a table for rows: they create it, or add the columns that it lacks. Pure.

A table is created from the declared columns, with their units and meanings as comments. A table that an earlier version
of strandline created gets the new columns, which are null in its old rows; no column is ever dropped or changed.

Invariant: a table that has all columns needs no statement, so a second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline_analytics.scope import Grouping
from strandline_analytics.sources.trouble import InputTrouble
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.tables import ResultFormat
from strandline_analytics.tables.runtimes import NoRuntime, pairs

# ---- names
# Names the table of a statistic: `CATALOG.NAMESPACE.s10_isr_time`, or for Delta without a catalog its place.
#
# A session of our own has no catalog in which Delta could keep names from one run to the next, so there a table is
# named by its directory, below the warehouse.
#
# Invariant: every part of a name is quoted, so that no user's name is parsed as SQL.

_SUFFIXES = {Grouping.PARTITION: "", Grouping.TOPIC: "_by_topic", Grouping.CLUSTER: "_by_cluster"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNames:
    """Names of one set of results. Without a catalog a warehouse is given, and tables are named by their places."""

    namespace: str
    """One name, or several with dots between them."""
    catalog: str | None = None
    warehouse: str | None = None
    """A directory or URI, as Hadoop names it."""

    @property
    def shown(self) -> str:
        """The place of the tables, as shown to people."""
        if self.catalog is not None:
            return f"{self.catalog}.{self.namespace}"
        return f"{self.warehouse}/{self.namespace.replace('.', '/')}"

    def shown_table(self, name: str) -> str:
        """A table as shown to people: its name, or the place that names it."""
        return f"{self.shown}{'/' if self.catalog is None else '.'}{name}"

    @property
    def quoted_namespace(self) -> str | None:
        """The namespace in SQL; None if tables are named by their places."""
        return None if self.catalog is None else ".".join(map(quoted, (self.catalog, *self._parts)))

    def table(self, name: str) -> str:
        """A table in SQL."""
        if self.catalog is not None:
            return f"{self.quoted_namespace}.{quoted(name)}"
        return f"delta.{quoted('/'.join((self.warehouse or '', *self._parts, name)))}"

    @property
    def _parts(self) -> list[str]:
        return self.namespace.split(".")


def table_of(statistic: Statistic, grouping: Grouping) -> str:
    """The name of a statistic's table; for a statistic of the whole cluster it is the same for every grouping."""
    suffix = "" if statistic.only_cluster else _SUFFIXES[grouping]
    return f"{statistic.id}_{statistic.name}{suffix}"


def quoted(name: str) -> str:
    """A part of a name in SQL."""
    return "`" + name.replace("`", "``") + "`"


_PARTITIONS = {
    # A run replaces an hour of a cluster. With these partitions Iceberg knows from their names alone, even after files
    # were merged, which files are replaced as a whole.
    ResultFormat.ICEBERG: " PARTITIONED BY (hours(window_start_time), cluster_id)",
    # Delta rewrites files that are replaced in part, and skips others by their minimum and maximum values.
    ResultFormat.DELTA: "",
}


class OtherColumns(InputTrouble):
    """A table has a column with the same name but another type."""


def create_namespace(namespace: str) -> str:
    """Create a namespace unless it exists.

    Args:
        namespace: the quoted name.
    """
    return f"CREATE NAMESPACE IF NOT EXISTS {namespace}"


def create_table(table: str, columns: Sequence[Value], kind: ResultFormat, comment: str) -> str:
    """Create a table unless it exists.

    Args:
        table: quoted.
        columns: the columns in order.
        kind: a format of tables.
        comment: the comment on the table.
    """
    listed = ", ".join(map(_column, columns))
    return (
        f"CREATE TABLE IF NOT EXISTS {table} ({listed}) USING {kind.value}{_PARTITIONS[kind]} COMMENT {_text(comment)}"
    )


def add_columns(table: str, columns: Sequence[Value], there: Mapping[str, str]) -> str | None:
    """Add the columns that a table lacks; None if it lacks none.

    Args:
        table: quoted.
        columns: the columns that rows have.
        there: the type of each column of the table, as Spark's `simpleString` names it.

    Raises:
        OtherColumns: a column of the table has another type.
    """
    for column in columns:
        if there.get(column.name, column.type) != column.type:
            raise OtherColumns(
                f"{table} has a column {column.name} of type {there[column.name]}, and rows have {column.type}: "
                "another version of strandline, or something else, made it. Give another --namespace, or rename it"
            )
    missing = [column for column in columns if column.name not in there]
    return f"ALTER TABLE {table} ADD COLUMNS ({', '.join(map(_column, missing))})" if missing else None


def refresh(table: str) -> str:
    """Drop a session's cached state of a table.

    Args:
        table: quoted.
    """
    return f"REFRESH TABLE {table}"


def describe_table(table: str) -> str:
    """Describe a table, in rows of `col_name`, `data_type` and `comment`.

    Args:
        table: quoted.
    """
    return f"DESCRIBE TABLE EXTENDED {table}"


def state_of_hours(tables: Mapping[str, str], start_us: int, end_us: int) -> str:
    """Query the inputs that rows of all tables name: `stat, cluster_id, window_start, hash, version, rows`.

    Args:
        tables: the quoted tables, by statistic id.
        start_us: the start of the first window, us since 1970.
        end_us: the moment before which the last window begins.
    """
    return " UNION ALL ".join(
        f"SELECT {_text(stat)} AS stat, cluster_id, window_start, input_manifest_hash AS hash, code_version AS version"
        f", count(*) AS rows FROM {table} WHERE window_start >= {start_us} AND window_start < {end_us} "
        "GROUP BY cluster_id, window_start, input_manifest_hash, code_version"
        for stat, table in tables.items()
    )


def _column(column: Value) -> str:
    said = f"{column.unit}: {column.meaning}" if column.unit else column.meaning
    return f"{quoted(column.name)} {column.type.upper()} COMMENT {_text(said)}"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ---- setting_up
# Prepares tables for rows in a session, and recognizes a session without a runtime.
#
# Invariant: a session that lacks something ends in one line that names the pairs that work, not in an error of Spark.

_WITHOUT_RUNTIME = (
    "CATALOG_NOT_FOUND", "CANNOT_LOAD_CATALOG", "Cannot find catalog plugin class", "DATA_SOURCE_NOT_FOUND",
    "MISSING_CATALOG_ABILITY", "Failed to find the data source",
    "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG", "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE",
    "UNSUPPORTED_FEATURE.TABLE_OPERATION",
)  # fmt: skip
"""Parts of the messages of Spark and Delta if a runtime, its extension or its catalog is not set up."""
_NO_TABLE = "DELTA_TABLE_NOT_FOUND"
_DETAILS = "# Detailed Table Information"
"""The line of a table's description that precedes its own properties."""


class OtherFiles(InputTrouble):
    """There is something other than a table at the place of a table."""


class OtherFormat(InputTrouble):
    """The catalog has a table with the same name but another format."""


def set_up(
    spark: SparkSession,
    kind: ResultFormat,
    namespace: str | None,
    tables: Mapping[str, tuple[str, Sequence[Value]]],
) -> None:
    """Create missing tables, and add new columns.

    Args:
        spark: any session.
        kind: a format of tables.
        namespace: the quoted name; None if none is to be created.
        tables: comments and columns, by quoted name.

    Raises:
        NoRuntime: the session has no runtime of the format, or no such catalog.
        OtherColumns: a table has other columns.
        OtherFiles: there are files at the place of a table.
        OtherFormat: the catalog has a table with this name in another format.
    """
    try:
        if namespace is not None:
            spark.sql(create_namespace(namespace))
            _check_formats(spark, kind, tables)
        for table, (comment, columns) in tables.items():
            spark.sql(create_table(table, columns, kind, comment))
    except Exception as error:
        # Depending on the release, Spark raises these as its own errors or as errors of the JVM's bridge.
        said = next((line for line in str(error).splitlines() if any(mark in line for mark in _WITHOUT_RUNTIME)), None)
        if said is None:
            raise
        raise NoRuntime(
            f"--format {kind.value}: this session has no runtime or catalog for it "
            f"({said[max(said.find('['), 0) :]}). Give both to spark-submit, by --packages and --conf; these pairs "
            f"work: {pairs()}"
        ) from error
    for table, (_, columns) in tables.items():
        added = add_columns(table, columns, _columns_of(spark, table))
        if added is not None:
            spark.sql(added)


def _check_formats(spark: SparkSession, kind: ResultFormat, tables: Iterable[str]) -> None:
    """Refuse a table of another format. A table that is named by its place has the format in its name."""
    for table in tables:
        provider = provider_of(spark, table)
        if provider not in (None, kind.value):
            raise OtherFormat(
                f"{table} is a table of provider {provider}, and --format {kind.value} was asked for: give another "
                "--namespace, or rename or drop that table"
            )


def provider_of(spark: SparkSession, table: str) -> str | None:
    """The format of a table as its catalog names it, in lower case; None if the table does not exist, or has no name.

    Args:
        spark: any session.
        table: quoted.
    """
    # PySpark's own log would report an attempt to describe a table that does not exist.
    if not spark.catalog.tableExists(table):
        return None
    said = spark.sql(describe_table(table)).collect()
    # Columns come first, and one of them may be called Provider.
    names = [row["col_name"] for row in said]
    details = said[names.index(_DETAILS) :] if _DETAILS in names else []
    return next((row["data_type"].lower() for row in details if row["col_name"] == "Provider"), None)


def _columns_of(spark: SparkSession, table: str) -> dict[str, str]:
    try:
        return {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
    except PySparkException as error:
        # Delta takes any directory with files for an existing table, so it does not create one in it.
        if _NO_TABLE not in str(error):
            raise
        raise OtherFiles(
            f"{table} has files and is not a table of Delta, perhaps one of --format iceberg: give another --out or "
            "--namespace"
        ) from error


# ---- warehouse
# Converts the directory or URI of the tables of a session of our own to Hadoop's form.


def warehouse_of(out: str) -> str:
    """The warehouse as an absolute URI, without a slash at its end.

    Args:
        out: a path on this machine, or a URI; `s3:` becomes Hadoop's `s3a:`.
    """
    if "://" in out:
        return out.replace("s3://", "s3a://", 1).rstrip("/")
    return f"file://{Path(out.removeprefix('file:')).absolute()}"
