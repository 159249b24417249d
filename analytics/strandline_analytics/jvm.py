"""The only module that goes beyond PySpark's public API, into the JVM of a session that has one.

Invariant: no other file of the analytics uses an attribute of PySpark or Py4J that begins with an underscore (a test
looks), and with Spark Connect, where there is no JVM to reach, only `has_jvm` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

import pyspark
from py4j.java_gateway import JavaObject
from py4j.protocol import ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID, Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from strandline_analytics.pyspark_range import numbers_of

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
    """The client that sends Py4J's calls to the JVM."""
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
    """Hadoop's configuration in Spark."""
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()


def read_stream(spark: SparkSession, stream: Any, size_bytes: int | None = None) -> bytes:
    """Read ``size_bytes`` of a stream of the JVM, or all of them."""
    convert = view_of(spark).org.apache.commons.io.IOUtils.toByteArray
    return bytes(convert(stream) if size_bytes is None else convert(stream, size_bytes))


def analyzed_plan(query: DataFrame) -> Any:
    """The plan of a query, with every name resolved."""
    return _execution(query).analyzed()


def plan_of_cached(query: DataFrame) -> Any:
    """The plan of a query in which a cached table is one leaf."""
    return _execution(query).withCachedData()


def of_its_rows(query: DataFrame) -> DataFrame:
    """A query whose plan has only the rows of another one, which are computed on demand.

    Their partitioning and their expected number stay known.
    """
    origin: Any = query
    # A companion object. From PySpark 4.3 on its method has one more parameter, with a default only in Scala.
    rows = getattr(getattr(view_of(query.sparkSession).org.apache.spark.sql.execution, "LogicalRDD$"), "MODULE$")
    more = [getattr(rows, "fromDataset$default$4")()] if numbers_of(pyspark.__version__) >= (4, 3) else []
    plan = rows.fromDataset(_execution(query).toRdd(), origin._jdf, False, *more)
    return query_of(plan, query.sparkSession, like=query)


def query_of(plan: Any, spark: SparkSession, *, like: F) -> F:
    """A query with this plan, planned and executed with the settings of a session."""
    session: Any = spark
    origin = view_of(spark).org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    made: Any = type(like)
    query: F = made(origin, spark)
    return query


def _execution(query: DataFrame) -> Any:
    origin: Any = query
    return origin._jdf.queryExecution()


# ---- jvm_names
# Reduces PySpark's calls of the JVM: asks once, or in one call for many.
#
# For each call of a function PySpark asks the JVM what its name means, and the JVM looks for a class of that name in
# every jar of its class path, first by itself and then in each imported package. The statistics make some thousand
# columns, so this took three seconds of a minute. The answer is always the same.
#
# A column that is a name is the same wherever it is written, so it is made once. A list of columns crosses to the JVM
# with one call for each of its elements; here it takes two for up to ten. And what Python has released, the JVM
# releases many at a time.
#
# Invariant: a name means what the JVM said when it was first asked; kept are classes and plain columns, and no objects
# that belong to a query.

_FUNCTIONS = ("org.apache.spark.sql.functions", "functions")
_LISTS = "PythonUtils"
_NAMES = 4_096
"""The maximum number of remembered names of columns; the statistics use some hundred."""
_AT_ONCE = 10
"""The number of elements that `java.util.List.of` takes in one call."""
_RELEASED_AT_ONCE = 1_000


class _KnownClass:
    """A class of the JVM that remembers its members."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for names that are not remembered yet.
        member = getattr(self._java_class, name)
        setattr(self, name, member)
        return member


def remember_names(spark: SparkSession) -> None:
    """Let the view of the JVM that a session has remember; with Spark Connect there is no JVM, and nothing to do."""
    if not has_jvm(spark):
        return
    jvm = view_of(spark)
    for name in (*_FUNCTIONS, _LISTS):
        # Names are stored in the view itself, where Python finds them before it asks the JVM.
        if name in vars(jvm):
            continue
        known: Any = _KnownClass(getattr(jvm, name))
        if name == _LISTS:
            known.toSeq = _in_few_calls(jvm, known.toSeq)
        else:
            known.col = _once_each(known.col)
        setattr(jvm, name, known)


def _once_each(made: Callable[[str], Any]) -> Callable[[str], Any]:
    @lru_cache(_NAMES)
    def column(name: str) -> Any:
        return made(name)

    return column


def _in_few_calls(jvm: Any, converted: Callable[[Any], Any]) -> Callable[[Iterable[Any]], Any]:
    """Let ``converted`` get a list of the JVM, which PySpark would fill element by element."""
    list_of: Any = jvm.java.util.List.of
    fresh: Any = jvm.java.util.ArrayList

    def of(elements: Iterable[Any]) -> Any:
        whole = list(elements)
        if len(whole) <= _AT_ONCE:
            return converted(list_of(*whole))
        gathered = fresh(list_of(*whole[:_AT_ONCE]))
        for start in range(_AT_ONCE, len(whole), _AT_ONCE):
            gathered.addAll(list_of(*whole[start : start + _AT_ONCE]))
        return converted(gathered)

    return of


def keep_objects(spark: SparkSession) -> None:
    """Let the JVM keep the objects that Python has released, in a session that ends with its command.

    A report makes some ten thousand of them, each of a few hundred bytes, and Python would report each one in a call
    of its own: a third of all calls.
    """
    client_of(spark).gateway_property.enable_memory_management = False


def release_together(spark: SparkSession) -> None:
    """Let the JVM release what Python has released `_RELEASED_AT_ONCE` objects at a time, in a session that stays."""
    gateway = gateway_of(spark)
    client = client_of(spark)
    if "garbage_collect_object" in vars(client):
        return
    bindings: Any = JavaObject("GATEWAY_SERVER", client).getGateway().getBindings()
    words: Any = gateway.jvm.java.util.StringTokenizer
    as_list: Any = gateway.jvm.java.util.Collections.list
    queued = client.garbage_collect_object
    released: list[str] = []

    def collect(target_id: str, enqueue: bool = True) -> None:
        if enqueue:
            # Called wherever Python happens to release something, be it in the middle of a call.
            queued(target_id)
            return
        # By the one thread that empties the queue.
        if target_id not in (ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID):
            released.append(target_id)
        if len(released) >= _RELEASED_AT_ONCE:
            ids = ",".join(released)
            released.clear()
            # A JVM that has ended holds nothing any more.
            with suppress(Py4JError, OSError):
                bindings.keySet().removeAll(as_list(words(ids, ",")))

    client.garbage_collect_object = collect
