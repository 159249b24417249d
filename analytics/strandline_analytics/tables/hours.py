"""Writes closed hours as rows of tables: one table per statistic, and one commit per hour of it.

A commit replaces the rows of its hour and clusters, so a run that is repeated after a kill leaves no duplicate rows.
The present contents are read from the tables: rows name the files that they follow from, and for hours without rows
the commits do (`commits`). There is no separate ledger.

Only public calls of PySpark are used, so it also works with Spark Connect.

Invariant: a reader of a table sees all rows of an hour from one run, or all from another; rows of other clusters and
hours stay.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from strandline import __version__
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.results import PLACE, ResultEntry, result_columns
from strandline_analytics.scope import HOUR_US, Grouping
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.tables import ResultFormat, statements
from strandline_analytics.tables.statements import TableNames, set_up, table_of

# ---- commits
# Reads and writes commit messages of tables, which record the input's hash of each written hour, by cluster.
#
# Rows name their input themselves. Only an hour without rows is known by the commit that wrote it, and only as long as
# no other writer has changed rows since.
#
# Each commit of a run has one message, in JSON: in Iceberg the property `strandline.hour` of the snapshot's summary, in
# Delta the user metadata of the commit.
#
# Invariant: a message that cannot be read, or that was followed by another writer's change of rows, is ignored.

_PROPERTY = "strandline.hour"
_WRITER = "strandline"
_WITHOUT_ROWS = frozenset(
    {
        "replace",
        "ADD COLUMNS",
        "CLUSTER BY",
        "CREATE TABLE",
        "OPTIMIZE",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations of Iceberg and Delta that do not change a table's rows."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit of a table: its operation, as the format names it, and its message."""

    operation: str
    word: str | None


def options_of(kind: ResultFormat, word: str, *, version: int) -> dict[str, str]:
    """The options of a write that give its commit a message.

    Delta skips a commit that neither adds nor removes a file, unless it carries a writer's transaction. That also makes
    one of two concurrent writers fail.

    Args:
        kind: a format of tables.
        word: the message, from `word_of`.
        version: the table's version before the write; it always rises, as that of a writer's transaction must.
    """
    if kind is ResultFormat.DELTA:
        return {"userMetadata": word, "txnAppId": _WRITER, "txnVersion": str(version + 1)}
    return {f"snapshot-property.{_PROPERTY}": word}


def word_of(hour: int, hashes: Mapping[str, str]) -> str:
    """The message of a commit that replaces an hour.

    Args:
        hour: the hour, counted from 1970.
        hashes: the hashes of the input, by cluster.
    """
    return json.dumps({"hour": hour, "hashes": dict(sorted(hashes.items())), "code_version": __version__})


def hours_said(commits: Iterable[TableCommit]) -> dict[tuple[str, int], ResultEntry]:
    """The entries that commits record for hours without rows, by cluster and hour.

    Args:
        commits: the commits that led to the present table, the oldest first.
    """
    said: dict[tuple[str, int], ResultEntry] = {}
    for commit in commits:
        own = _read(commit.word)
        if own is not None:
            said |= own
        elif commit.operation not in _WITHOUT_ROWS:
            said.clear()
    return said


def _read(word: str | None) -> dict[tuple[str, int], ResultEntry] | None:
    try:
        read: dict[str, Any] = json.loads(word or "")
        hour, version = int(read["hour"]), str(read["code_version"])
        return {
            (str(cluster), hour): ResultEntry(input_manifest_hash=str(own), rows=0, code_version=version)
            for cluster, own in read["hashes"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def version_of(spark: SparkSession, table: str, kind: ResultFormat) -> int:
    """The version of a Delta table; 0 for other tables, which have none.

    Args:
        spark: any session that has the table.
        table: quoted.
        kind: its format.
    """
    if kind is not ResultFormat.DELTA:
        return 0
    (row,) = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").select("version").collect()
    return int(row["version"])


def commits_of(spark: SparkSession, table: str, kind: ResultFormat) -> list[TableCommit]:
    """The commits that led to the present table and are still recorded, the oldest first.

    Args:
        spark: any session that has the table.
        table: quoted.
        kind: its format.
    """
    if kind is ResultFormat.DELTA:
        history = spark.sql(f"DESCRIBE HISTORY {table}").orderBy("version").select("operation", "userMetadata")
        return [TableCommit(operation, word) for operation, word in history.collect()]
    snapshots = spark.sql(
        f"SELECT operation, summary['{_PROPERTY}'] FROM {table}.snapshots LEFT SEMI JOIN "
        f"(SELECT snapshot_id FROM {table}.history WHERE is_current_ancestor) USING (snapshot_id) ORDER BY committed_at"
    )
    return [TableCommit(operation, word) for operation, word in snapshots.collect()]


# ---- seen
# Makes a session see commits of other sessions of its application, or of other programs.
#
# Iceberg's catalogs cache the tables that a session has read for 30 seconds after each use. Results are written by
# sessions for the size of their input (`session.session_for`), so the session that reads them must refresh the tables.
# Delta reads a table's log at every use.
#
# Invariant: a run reads the current contents of tables.


def see_again(spark: SparkSession, tables: Collection[str], kind: ResultFormat) -> None:
    """Make a session drop its cached state of tables.

    Args:
        spark: any session that has the tables.
        tables: the quoted names of the tables.
        kind: the format of the tables.
    """
    if kind is ResultFormat.ICEBERG:
        for table in tables:
            spark.sql(statements.refresh(table))


_Key = tuple[str, str, int]
"""A statistic's id, a cluster and an hour since 1970."""


class HoursInTables:
    """Results in tables of a catalog or a warehouse. Only one run at a time may write an hour."""

    def __init__(self, spark: SparkSession, kind: ResultFormat, names: TableNames, grouping: Grouping) -> None:
        """Reads and creates nothing yet; ``kind`` is a format of tables."""
        self._spark = spark
        self._kind = kind
        self._names = names
        self._grouping = grouping
        self._known: dict[_Key, ResultEntry | None] = {}
        self._tables: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The catalog and namespace."""
        return self._names.shown

    def place(self, statistic: Statistic) -> str:
        """The table of a statistic, as shown to people."""
        return self._names.shown_table(table_of(statistic, self._grouping))

    def table(self, statistic: Statistic) -> str:
        """The table of a statistic, in SQL."""
        return self._names.table(table_of(statistic, self._grouping))

    def begin(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> None:
        """Create missing tables, add new columns, and read what is known of the hours.

        Raises:
            NoRuntime: the session has no runtime of the format, or no such catalog.
            OtherColumns: a table has columns of other types than the rows.
            OtherFiles: there are files at the place of a table.
            OtherFormat: the catalog has a table with this name in another format.
        """
        if not hours:
            return
        wanted = {self.table(one): (one, result_columns(one, self._grouping)) for one in statistics}
        titled = {table: (f"{one.id} {one.name}: {one.title}", columns) for table, (one, columns) in wanted.items()}
        set_up(self._spark, self._kind, self._names.quoted_namespace, titled)
        self._tables = tuple(titled)
        see_again(self._spark, self._tables, self._kind)
        self._known = self._read(statistics, hours)

    def _read(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> dict[_Key, ResultEntry | None]:
        known = said_by_rows(self._entries(statistics, hours))
        for one in statistics:
            if any((one.id, hour.cluster_id, hour.hour) not in known for hour in hours):
                said = hours_said(commits_of(self._spark, self.table(one), self._kind))
                for (cluster, hour), silent in said.items():
                    known.setdefault((one.id, cluster, hour), silent)
        return known

    def _entries(
        self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]
    ) -> list[tuple[_Key, ResultEntry]]:
        """The inputs that rows name: one entry for each input of a statistic, cluster and hour."""
        numbers = [hour.hour for hour in hours]
        tables = {one.id: self.table(one) for one in statistics}
        query = statements.state_of_hours(tables, min(numbers) * HOUR_US, (max(numbers) + 1) * HOUR_US)
        return [
            (
                (row["stat"], row["cluster_id"], row["window_start"] // HOUR_US),
                ResultEntry(input_manifest_hash=row["hash"], rows=row["rows"], code_version=row["version"]),
            )
            for row in self._spark.sql(query).collect()
        ]

    def known(self, hour: HourCoverage) -> Mapping[str, ResultEntry]:
        """The entries of an hour, from rows and commits."""
        return {
            stat: entry
            for (stat, cluster, number), entry in self._known.items()
            if entry is not None and (cluster, number) == (hour.cluster_id, hour.hour)
        }

    def write(self, statistic: Statistic, rows: DataFrame, hour: int, hashes: Mapping[str, str]) -> None:
        """Replace the rows of an hour by one commit."""
        table = self.table(statistic)
        version = version_of(self._spark, table, self._kind)
        options = options_of(self._kind, word_of(hour, hashes), version=version)
        see_again(rows.sparkSession, [table], self._kind)
        rows.drop(PLACE).writeTo(table).options(**options).overwrite(_is_of(hour, hashes))

    def finish(self, hour: HourCoverage) -> None:
        """Does nothing: every commit is complete by itself."""

    def end(self) -> None:
        """Make the session see what other sessions wrote."""
        see_again(self._spark, self._tables, self._kind)

    def count(self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]) -> dict[str, int]:
        """The number of rows in the tables."""
        if not hours:
            return {}
        asked = {(hour.cluster_id, hour.hour) for hour in hours}
        counts = Counter({one.id: 0 for one in statistics})
        for (stat, cluster, hour), entry in self._entries(statistics, hours):
            counts[stat] += entry.rows if (cluster, hour) in asked else 0
        return dict(counts)


def said_by_rows(entries: Iterable[tuple[_Key, ResultEntry]]) -> dict[_Key, ResultEntry | None]:
    """The entry of each hour, from its rows; None if they follow from several inputs, because another run wrote some of
    them."""
    known: dict[_Key, ResultEntry | None] = {}
    for key, entry in entries:
        known[key] = None if key in known else entry
    return known


def _is_of(hour: int, clusters: Collection[str]) -> Column:
    """Whether a row belongs to an hour of some clusters, expressed by Iceberg's partitions."""
    # Literals, not expressions: the formats accept conditions only in this form.
    begin = datetime.fromtimestamp(hour * HOUR_US // 1_000_000, UTC)
    at = F.col("window_start_time")
    within = (at >= F.lit(begin)) & (at < F.lit(begin + timedelta(hours=1)))
    return within & F.col("cluster_id").isin(*clusters)
