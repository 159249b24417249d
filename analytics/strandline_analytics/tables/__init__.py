"""Results as tables of a catalog: Apache Iceberg and Delta Lake, by their own runtimes for Spark.

Importing this loads no Spark, as the command line's help does.
"""

from __future__ import annotations

from enum import StrEnum


class ResultFormat(StrEnum):
    """How results lie where they are written."""

    PARQUET = "parquet"
    """Files in folders of our own layout; nothing beside PySpark is needed."""
    ICEBERG = "iceberg"
    DELTA = "delta"

    @property
    def is_table(self) -> bool:
        """Whether results are tables with commits of their own."""
        return self is not ResultFormat.PARQUET
