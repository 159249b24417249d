"""Closed hours as rows of tables: one table for a statistic, and one commit for an hour of it.

A commit replaces the rows of its hour and clusters, so a run that is repeated after a kill leaves no row twice. What is
there is read from the tables: rows name the files that they follow from, and of hours without rows the commits do
(`commits`). There is no ledger beside the tables.

Only public calls of PySpark are used, which a session of Spark Connect has too.

Invariant: anyone who reads a table sees all rows of an hour of one run, or all of another; a table that holds rows of
other clusters and hours keeps them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline_analytics.jobs.columns import result_columns
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.results import PLACE, Entry
from strandline_analytics.scope import HOUR_US, Grouping
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.tables import statements
from strandline_analytics.tables.commits import commits_of, hours_said, options_of, version_of, word_of
from strandline_analytics.tables.formats import ResultFormat
from strandline_analytics.tables.names import TableNames, table_of
from strandline_analytics.tables.seen import see_again
from strandline_analytics.tables.setting_up import set_up

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
        self._known: dict[_Key, Entry | None] = {}
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

    def _read(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> dict[_Key, Entry | None]:
        known = said_by_rows(self._entries(statistics, hours))
        for one in statistics:
            if any((one.id, hour.cluster_id, hour.hour) not in known for hour in hours):
                said = hours_said(commits_of(self._spark, self.table(one), self._kind))
                for (cluster, hour), silent in said.items():
                    known.setdefault((one.id, cluster, hour), silent)
        return known

    def _entries(self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]) -> list[tuple[_Key, Entry]]:
        """What rows say that they follow from: one entry for each input of a statistic, cluster and hour."""
        numbers = [hour.hour for hour in hours]
        tables = {one.id: self.table(one) for one in statistics}
        query = statements.state_of_hours(tables, min(numbers) * HOUR_US, (max(numbers) + 1) * HOUR_US)
        return [
            (
                (row["stat"], row["cluster_id"], row["window_start"] // HOUR_US),
                Entry(input_manifest_hash=row["hash"], rows=row["rows"], code_version=row["version"]),
            )
            for row in self._spark.sql(query).collect()
        ]

    def known(self, hour: HourCoverage) -> Mapping[str, Entry]:
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


def said_by_rows(entries: Iterable[tuple[_Key, Entry]]) -> dict[_Key, Entry | None]:
    """What rows say of each hour; None where those of one hour follow from several inputs, so that somebody else wrote
    some of them."""
    known: dict[_Key, Entry | None] = {}
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
