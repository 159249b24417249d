"""Which statements make a table fit for rows: the table itself, or the columns that it lacks. Pure: text in, text out.

A table is made from the declared columns, with their units and meanings as comments. One that an earlier version of
strandline made gets the columns that are new, which are null in its old rows; no column is ever dropped or changed.

Invariant: a table that has the columns needs no statement, so a second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline_analytics.sources.trouble import InputTrouble
from strandline_analytics.stats.definition import Value
from strandline_analytics.tables.formats import ResultFormat
from strandline_analytics.tables.names import quoted

_PARTITIONS = {
    # What a run replaces is an hour of a cluster: only so Iceberg knows by names of partitions alone, also after files
    # were merged, which files are replaced as a whole.
    ResultFormat.ICEBERG: " PARTITIONED BY (hours(window_start_time), cluster_id)",
    # Delta rewrites files that are replaced in part, and skips others by their least and greatest values.
    ResultFormat.DELTA: "",
}


class OtherColumns(InputTrouble):
    """A table has a column of the same name and of another type."""


def create_namespace(namespace: str) -> str:
    """Make a namespace, unless it is there.

    Args:
        namespace: quoted.
    """
    return f"CREATE NAMESPACE IF NOT EXISTS {namespace}"


def create_table(table: str, columns: Sequence[Value], kind: ResultFormat, comment: str) -> str:
    """Make a table, unless it is there.

    Args:
        table: quoted.
        columns: in their order.
        kind: a format of tables.
        comment: on the table.
    """
    listed = ", ".join(map(_column, columns))
    return (
        f"CREATE TABLE IF NOT EXISTS {table} ({listed}) USING {kind.value}{_PARTITIONS[kind]} COMMENT {_text(comment)}"
    )


def add_columns(table: str, columns: Sequence[Value], there: Mapping[str, str]) -> str | None:
    """Add the columns that a table lacks; None where it lacks none.

    Args:
        table: quoted.
        columns: those that rows have.
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
    """Forget what a session keeps of a table.

    Args:
        table: quoted.
    """
    return f"REFRESH TABLE {table}"


def describe_table(table: str) -> str:
    """Say what a table is, in rows of `col_name`, `data_type` and `comment`.

    Args:
        table: quoted.
    """
    return f"DESCRIBE TABLE EXTENDED {table}"


def state_of_hours(tables: Mapping[str, str], start_us: int, end_us: int) -> str:
    """What rows of all tables say that they follow from: `stat, cluster_id, window_start, hash, version, rows`.

    Args:
        tables: quoted, by the statistic's id.
        start_us: the first window, us since 1970.
        end_us: the moment before which the last one begins.
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
