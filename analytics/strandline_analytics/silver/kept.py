"""How a table is kept that many queries read: made when first asked for, its origin out of their plans.

Spark keeps what is cached, but plans of all that reads it go on naming everything that led to it. Silver tables stand
on one another, so Catalyst would spend more on analysing a small query than the query takes. Here the plan of a kept
table is one leaf.

Invariant: a kept table has the rows, names and types of what it was made of, and parts of it that are lost are made
again.
"""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

_ORIGIN = "_strandline_kept_from"


def kept(made: DataFrame) -> DataFrame:
    """The same table, kept until `let_go`; what does not fit into memory goes to disk."""
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


def let_go(frame: DataFrame) -> None:
    """Keep a table no longer; it can still be read, and is then made again."""
    origin: DataFrame = getattr(frame, _ORIGIN, frame)
    origin.unpersist()
