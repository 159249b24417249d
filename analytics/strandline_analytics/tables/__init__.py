"""Writes results as tables of a catalog: Apache Iceberg and Delta Lake, by their own runtimes for Spark.

Importing this does not load Spark, because the command line's help imports it.
"""

from __future__ import annotations

from enum import StrEnum


class ResultFormat(StrEnum):
    """The format in which results are written."""

    PARQUET = "parquet"
    """Files in folders of our own layout; needs nothing besides PySpark."""
    ICEBERG = "iceberg"
    DELTA = "delta"

    @property
    def is_table(self) -> bool:
        """Whether results are tables with their own commits."""
        return self is not ResultFormat.PARQUET
