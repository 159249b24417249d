"""A live cluster's topic as a Spark data source: `register` it, then ``spark.read.format("strandline")``."""

from __future__ import annotations

from pyspark.sql import SparkSession

from strandline_analytics.topic.source import TopicSource


def register(spark: SparkSession) -> None:
    """Let ``spark.read.format("strandline")`` and ``spark.readStream.format("strandline")`` work in this session."""
    spark.dataSource.register(TopicSource)
