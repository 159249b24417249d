"""The destination of results: files, tables of a session of our own, or tables of a given session.

Importing this does not load Spark, because the command line's help imports it.

Invariant: a run and a server write closed hours to the same place if they have the same options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline_analytics.tables import ResultFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline_analytics.jobs.results import Results
    from strandline_analytics.scope import Grouping
    from strandline_analytics.tables.statements import TableNames

NAMESPACE = "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A destination for rows of closed hours."""

    kind: ResultFormat = ResultFormat.PARQUET
    out: str | None
    """A directory or URI for files, or the warehouse of tables; None if a given session's catalog determines it."""
    catalog: str | None = None
    namespace: str = NAMESPACE
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings that a session of our own needs."""

    def results(self, spark: SparkSession, grouping: Grouping) -> Results:
        """The results of one run, ready for rows of closed hours."""
        if not self.kind.is_table:
            from strandline_analytics.jobs.parquet_results import ParquetResults

            assert self.out is not None
            return ParquetResults(spark, self.out, grouping)
        from strandline_analytics.tables.hours import HoursInTables

        return HoursInTables(spark, self.kind, self.names(spark), grouping)

    def names(self, spark: SparkSession) -> TableNames:
        """The names of tables; without a named catalog they are in the session's current one."""
        from strandline_analytics.tables.statements import TableNames, warehouse_of

        if self.out is None:
            catalog = self.catalog or spark.catalog.currentCatalog()
            return TableNames(catalog=catalog, namespace=self.namespace)
        if self.kind is ResultFormat.DELTA:
            return TableNames(warehouse=warehouse_of(self.out), namespace=self.namespace)
        return TableNames(catalog=self.catalog, namespace=self.namespace)
