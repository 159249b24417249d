"""A live cluster's topic as a Spark data source and sink, under the format's name ``strandline``."""

from __future__ import annotations

from pyspark.sql import SparkSession

from strandline_analytics.topic.source import TopicSource


def register(spark: SparkSession) -> None:
    """Let ``format("strandline")`` work in this session, for reading and writing, as batch and as stream.

    Sessions that find ``pyspark_strandline`` on the driver's path need no call.
    """
    spark.dataSource.register(TopicSource)
