"""How a table is kept that many queries read: made when first asked for, its origin out of their plans.

Spark keeps what is cached, but plans of all that reads it go on naming everything that led to it. Silver tables stand
on one another, so Catalyst would spend more on analysing a small query than the query takes. Here the plan of a kept
table is one leaf.

Invariant: a kept table has the rows, names and types of what it was made of, and parts of it that are lost are made
again; rows have no origin, and are never lost while the process lives.
"""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

KEPT_AS_ROWS = "spark.strandline.keptAsRows"
"""The setting of a session under which tables are kept as rows; it is set by the size of input (`session.SMALL`)."""
_ROWS = "LogicalRDD"
_ORIGIN = "_strandline_kept_from"


def kept(made: DataFrame) -> DataFrame:
    """The same table, kept until `let_go`; what does not fit into memory goes to disk.

    What is kept as rows is made before this returns, and goes when nothing refers to it any more.
    """
    if is_kept_as_rows(made):
        return made.coalesce(1).localCheckpoint()
    cached = made.persist(StorageLevel.MEMORY_AND_DISK)
    origin: Any = getattr(cached, "_jdf", None)
    if origin is None:
        # Spark Connect: no plan is within reach.
        return cached
    session: Any = cached.sparkSession
    plan = origin.queryExecution().withCachedData()
    leaf = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(origin.sparkSession(), plan)
    frame = type(cached)(leaf, session)
    setattr(frame, _ORIGIN, cached)
    return frame


def is_kept_as_rows(table: DataFrame) -> bool:
    """Whether `kept` makes the rows of a table at once."""
    return tables_are_rows(table.sparkSession)


def tables_are_rows(spark: SparkSession) -> bool:
    """Whether a session keeps its tables as rows: its input is little."""
    return spark.conf.get(KEPT_AS_ROWS, "false") == "true"


def let_go(frame: DataFrame) -> None:
    """Keep a table no longer; it can still be read, and is then made again, unless it was kept as rows."""
    origin: Any = getattr(frame, _ORIGIN, frame)
    plan = None if getattr(origin, "_jdf", None) is None else origin._jdf.queryExecution().analyzed()
    if plan is not None and plan.nodeName() == _ROWS:
        plan.rdd().unpersist(False)
    else:
        origin.unpersist()
