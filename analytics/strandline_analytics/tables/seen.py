"""When a session sees what was committed to a table beside it, by other sessions of its application or other programs.

Iceberg's catalogs keep the tables that a session has read, as they were, for 30 seconds after each use. Results are
written by sessions for the size of their input (`session.session_for`), so the one that reads them has to be asked to
look again. Delta looks at a table's log whenever it is read.

Invariant: what a run reads of tables is what they have when it reads.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession

from strandline_analytics.tables import statements
from strandline_analytics.tables.formats import ResultFormat


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
