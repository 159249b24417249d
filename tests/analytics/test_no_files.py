"""An export that has no file of a dataset, as one that was made from a Kafka cluster's metadata log has no samples."""

from __future__ import annotations

from executed_plan import paths
from pyspark.sql import SparkSession

from strandline.export.schema import spark_ddl
from strandline_analytics.sources.exports import read_rows


def test_no_file_is_no_row_with_every_column(spark: SparkSession) -> None:
    """The rows of no file have the names and types of the schema, as those of a file have."""
    rows = read_rows(spark, [])

    assert rows.count() == 0
    assert rows.schema.simpleString() == spark.read.schema(spark_ddl()).json([]).schema.simpleString()


def test_no_file_is_read_without_a_worker_of_python(spark: SparkSession) -> None:
    """The plan of no rows scans nothing that this process holds: Spark would start a worker of Python for it."""
    leaves = {path[-1] for path in paths(read_rows(spark, []))}

    assert not [leaf for leaf in leaves if "Scan" in leaf], leaves
