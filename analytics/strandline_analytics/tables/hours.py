"""Closed hours as rows of tables: one table for a statistic, and one commit for an hour of it.

A commit replaces the rows of its hour and clusters, so a run that is repeated after a kill leaves no row twice. What is
there is read from the tables: rows name the files that they follow from, and of hours without rows the commits do
(`commits`). There is no ledger beside the tables.

Only public calls of PySpark are used, which a session of Spark Connect has too.

Invariant: anyone who reads a table sees all rows of an hour of one run, or all of another; a table that holds rows of
other clusters and hours keeps them.
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
# What the commits of a table say of the hours that were written: the hash of the input of each, by cluster.
#
# Rows name their input themselves. Only an hour without any row is known by the commit that wrote it, and only as long
# as no other writer has changed rows since.
#
# Each commit of a run has one word, JSON: in Iceberg the property `strandline.hour` of the snapshot's summary, in Delta
# the user's metadata of the commit.
#
# Invariant: a word that cannot be read, or that was followed by a change of rows that is not ours, says nothing.

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
"""Operations of Iceberg and Delta after which a table has the rows that it had before."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit of a table: what it did, as the format names it, and the word it has."""

    operation: str
    word: str | None


def options_of(kind: ResultFormat, word: str, *, version: int) -> dict[str, str]:
    """The options of a write that give its commit a word.

    Delta leaves out a commit that neither adds nor removes a file, unless it carries a writer's transaction. Of two
    writers at a time, one fails by it.

    Args:
        kind: a format of tables.
        word: of `word_of`.
        version: of the table before the write; that of a writer's transaction must rise, and a table's version does.
    """
    if kind is ResultFormat.DELTA:
        return {"userMetadata": word, "txnAppId": _WRITER, "txnVersion": str(version + 1)}
    return {f"snapshot-property.{_PROPERTY}": word}


def word_of(hour: int, hashes: Mapping[str, str]) -> str:
    """The word of a commit that replaces an hour.

    Args:
        hour: since 1970.
        hashes: of the input, by cluster.
    """
    return json.dumps({"hour": hour, "hashes": dict(sorted(hashes.items())), "code_version": __version__})


def hours_said(commits: Iterable[TableCommit]) -> dict[tuple[str, int], ResultEntry]:
    """What commits say of hours without rows, by cluster and hour.

    Args:
        commits: those that led to the table as it is, the oldest first.
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
    """The version of a table of Delta; 0 of others, which have none.

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
    """The commits that led to a table as it is and that its format still knows, the oldest first.

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
# When a session sees what was committed to a table beside it, by other sessions of its application or other programs.
#
# Iceberg's catalogs keep the tables that a session has read, as they were, for 30 seconds after each use. Results are
# written by sessions for the size of their input (`session.session_for`), so the one that reads them has to be asked to
# look again. Delta looks at a table's log whenever it is read.
#
# Invariant: what a run reads of tables is what they have when it reads.


def see_again(spark: SparkSession, tables: Collection[str], kind: ResultFormat) -> None:
    """Make a session forget what it keeps of tables.

    Args:
        spark: any session that has them.
        tables: quoted.
        kind: their format.
    """
    if kind is ResultFormat.ICEBERG:
        for table in tables:
            spark.sql(statements.refresh(table))


_Key = tuple[str, str, int]
"""A statistic's id, a cluster and an hour since 1970."""


class HoursInTables:
    """Tables of a catalog, or of a warehouse. One run at a time writes an hour of them."""

    def __init__(self, spark: SparkSession, kind: ResultFormat, names: TableNames, grouping: Grouping) -> None:
        """Nothing is read or made yet; ``kind`` is a format of tables."""
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
        """The table of a statistic, for people."""
        return self._names.shown_table(table_of(statistic, self._grouping))

    def table(self, statistic: Statistic) -> str:
        """The table of a statistic, in SQL."""
        return self._names.table(table_of(statistic, self._grouping))

    def begin(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> None:
        """Make tables that are not there, add columns that are new, and read what is known of the hours.

        Raises:
            NoRuntime: the session has no runtime of the format, or no such catalog.
            OtherColumns: a table cannot take the rows.
            OtherFiles: files lie where a table is to be.
            OtherFormat: the catalog has a table of the name in another format.
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
        """What rows say that they follow from: one entry for each input of a statistic, cluster and hour."""
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
        """What rows and commits say of an hour."""
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
        """Nothing is left to do: every commit is complete by itself."""

    def end(self) -> None:
        """Show the session what was written beside it."""
        see_again(self._spark, self._tables, self._kind)

    def count(self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]) -> dict[str, int]:
        """How many rows the tables have."""
        if not hours:
            return {}
        asked = {(hour.cluster_id, hour.hour) for hour in hours}
        counts = Counter({one.id: 0 for one in statistics})
        for (stat, cluster, hour), entry in self._entries(statistics, hours):
            counts[stat] += entry.rows if (cluster, hour) in asked else 0
        return dict(counts)


def said_by_rows(entries: Iterable[tuple[_Key, ResultEntry]]) -> dict[_Key, ResultEntry | None]:
    """What rows say of each hour; None where those of one hour follow from several inputs, so that another run wrote
    some of them."""
    known: dict[_Key, ResultEntry | None] = {}
    for key, entry in entries:
        known[key] = None if key in known else entry
    return known


def _is_of(hour: int, clusters: Collection[str]) -> Column:
    """Whether a row is of an hour of some clusters, in the terms of Iceberg's partitions."""
    # Literals and not expressions: formats take conditions only as they are written here.
    begin = datetime.fromtimestamp(hour * HOUR_US // 1_000_000, UTC)
    at = F.col("window_start_time")
    within = (at >= F.lit(begin)) & (at < F.lit(begin + timedelta(hours=1)))
    return within & F.col("cluster_id").isin(*clusters)
