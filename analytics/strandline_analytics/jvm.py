"""The one place that reaches behind PySpark's public API, into the JVM of a session that has one.

Invariant: no other file of the analytics uses an attribute of PySpark or Py4J that begins with an underscore (a test
looks), and with Spark Connect, where there is no JVM to reach, only `has_jvm` is called.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

F = TypeVar("F", bound=DataFrame)


def has_jvm(spark: SparkSession) -> bool:
    """Whether the JVM of a session can be reached from this process; with Spark Connect it cannot."""
    return getattr(spark, "_jsparkSession", None) is not None


def is_started() -> bool:
    """Whether this process has a JVM of Spark."""
    return SparkContext._gateway is not None


def gateway_of(spark: SparkSession) -> Any:
    """Py4J's gateway to the JVM."""
    return spark.sparkContext._gateway


def client_of(spark: SparkSession) -> Any:
    """What sends Py4J's calls to the JVM."""
    return gateway_of(spark)._gateway_client


def view_of(spark: SparkSession) -> Any:
    """The view of the JVM's packages in which PySpark itself looks up names."""
    return spark._jvm


def hadoop_path(spark: SparkSession, name: str) -> Any:
    """A path of Hadoop; ``s3:`` is read by Hadoop's ``s3a:``."""
    return view_of(spark).org.apache.hadoop.fs.Path(name.replace("s3://", "s3a://", 1))


def hadoop_files(spark: SparkSession, path: Any) -> Any:
    """The file system that a path of Hadoop is in."""
    return path.getFileSystem(hadoop_settings(spark))


def hadoop_settings(spark: SparkSession) -> Any:
    """Hadoop's configuration as Spark has it."""
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()


def read_stream(spark: SparkSession, stream: Any, size_bytes: int | None = None) -> bytes:
    """So many bytes of a stream of the JVM, or all of them."""
    convert = view_of(spark).org.apache.commons.io.IOUtils.toByteArray
    return bytes(convert(stream) if size_bytes is None else convert(stream, size_bytes))


def analyzed_plan(query: DataFrame) -> Any:
    """The plan of a query, with every name resolved."""
    return _execution(query).analyzed()


def plan_of_cached(query: DataFrame) -> Any:
    """The plan of a query in which what is cached is one leaf."""
    return _execution(query).withCachedData()


def query_of(plan: Any, spark: SparkSession, *, like: F) -> F:
    """A query with this plan, planned and carried out with the settings of a session."""
    session: Any = spark
    origin = view_of(spark).org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    made: Any = type(like)
    query: F = made(origin, spark)
    return query


def _execution(query: DataFrame) -> Any:
    origin: Any = query
    return origin._jdf.queryExecution()
