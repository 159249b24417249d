"""Which line a Spark job is ascribed to: one name for all, where nobody looks at jobs one by one.

For each step of each query Spark walks the stack of its thread to find the line that asked for it: over little input
a twentieth of a report's time.

Invariant: over larger input, whose jobs people look at, they are ascribed as ever.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from strandline_analytics.silver.kept import tables_are_rows

_PROPERTIES = ("callSite.short", "callSite.long")


def ascribe_together(spark: SparkSession, name: str = "strandline") -> None:
    """Ascribe what this thread asks of Spark to ``name``, until it has collected an answer; threads inherit it."""
    if not tables_are_rows(spark):
        return
    context = spark.sparkContext
    for each in _PROPERTIES:
        context.setLocalProperty(each, name)
