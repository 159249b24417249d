"""Statistics of closed hours as tables, for people who go on with Spark from there: in notebooks, with Spark Connect.

Invariant: the tables are those that `strandline analytics run --format` writes; the session's settings are not touched.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from strandline_analytics.jobs.ask import Question, chosen
from strandline_analytics.jobs.run import Written, hours_for, run, whole_hours
from strandline_analytics.scope import Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.tables.formats import ResultFormat
from strandline_analytics.tables.hours import HoursInTables
from strandline_analytics.tables.statements import TableNames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline_analytics.jobs.results import Results
    from strandline_analytics.scope import Grouping
    from strandline_analytics.tables.statements import TableNames


# ---- destination
# Where results go: to files, to tables of a session of our own, or to tables of a session that was given.
#
# Importing this loads no Spark, as the command line's help does.
#
# Invariant: whatever writes closed hours, a run or a server, writes them to the same place for the same options.

NAMESPACE = "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A place that can take rows of closed hours."""

    kind: ResultFormat = ResultFormat.PARQUET
    out: str | None
    """A directory or URI: of files, or the warehouse of tables. None: the catalog of a given session says it."""
    catalog: str | None = None
    namespace: str = NAMESPACE
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the session needs, if it is our own."""

    def results(self, spark: SparkSession, grouping: Grouping) -> Results:
        """The place for rows of closed hours, of one run."""
        if not self.kind.is_table:
            from strandline_analytics.jobs.parquet_results import ParquetResults

            assert self.out is not None
            return ParquetResults(spark, self.out, grouping)
        from strandline_analytics.tables.hours import HoursInTables

        return HoursInTables(spark, self.kind, self.names(spark), grouping)

    def names(self, spark: SparkSession) -> TableNames:
        """The names of tables; a catalog that was not named is the session's current one."""
        from strandline_analytics.tables.statements import TableNames, warehouse_of

        if self.out is None:
            catalog = self.catalog or spark.catalog.currentCatalog()
            return TableNames(catalog=catalog, namespace=self.namespace)
        if self.kind is ResultFormat.DELTA:
            return TableNames(warehouse=warehouse_of(self.out), namespace=self.namespace)
        return TableNames(catalog=self.catalog, namespace=self.namespace)


def write_tables(
    spark: SparkSession,
    inputs: Sequence[str],
    kind: str,
    *,
    catalog: str | None = None,
    namespace: str = "results",
    names: Sequence[str] = (),
    start_us: int | None = None,
    end_us: int | None = None,
    cluster_id: str | None = None,
    grouping: Grouping = Grouping.PARTITION,
    recompute: bool = False,
) -> Written:
    """Write the closed hours of a window that changed.

    Args:
        spark: any session with a runtime and a catalog of the format, as it is.
        inputs: directories or URIs: roots of exports, or folders of clusters below them.
        kind: `iceberg` or `delta`.
        catalog: where the tables are; None: the session's current one.
        namespace: in it, with dots between its parts.
        names: of statistics: `s10`, `S10` or `isr_time`; none: all.
        start_us: the first moment of the first hour, us since 1970; None: from the first event.
        end_us: the moment before which the last hour ends; None: to the last event.
        cluster_id: only this cluster; None: all that are there.
        grouping: what a row is about.
        recompute: compute also hours that did not change.

    Raises:
        ValueError: there is no such statistic, or no such format of tables.
        InputTrouble: see `sources.trouble`.
        NoRuntime: the session has no runtime of the format, or no such catalog.
    """
    found = ResultFormat(kind)
    if not found.is_table:
        raise ValueError(f"{kind} is no format of tables; there are: iceberg, delta")
    question = whole_hours(
        Question(
            inputs=tuple(inputs),
            statistics=chosen(names or [*ALL]),
            start_us=start_us,
            end_us=end_us,
            cluster_id=cluster_id,
            grouping=grouping,
        )
    )
    hours = hours_for(spark, question, now_us=time.time_ns() // 1_000)
    where = TableNames(catalog=catalog or spark.catalog.currentCatalog(), namespace=namespace)
    return run(spark, question, hours, HoursInTables(spark, found, where, grouping), recompute=recompute)
