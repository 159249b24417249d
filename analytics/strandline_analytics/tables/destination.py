"""Where results go: to files, to tables of a session of our own, or to tables of a session that was given.

Importing this loads no Spark, as the command line's help does.

Invariant: whatever writes closed hours, a run or a server, writes them to the same place for the same options.
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
