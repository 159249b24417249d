"""Keeps tables that many queries read: they are made on first use, and the queries' plans do not contain their origin.

Spark caches tables, but the plans of their readers still contain everything that led to them. Silver tables build on
one another, so Catalyst would spend more time on analysing a small query than the query takes. Here the plan of a kept
table is one leaf. Spark also describes each query to its listeners, and follows cached tables to their own plans, once
for each mention: a table upon tables upon tables would be described a thousand times. So a cached table is made of
rows, whose plan does not contain their origin either.

Invariant: a kept table has the rows, names and types of its source, and lost parts of it are computed again; rows have
no origin, and are kept only if the asking process itself holds them (`session.session_for`), or if Spark Connect leaves
no other way.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from strandline_analytics.jvm import analyzed_plan, has_jvm, of_its_rows, plan_of_cached, query_of
from strandline_analytics.scope import PARTITION_KEY, Scope

KEPT_AS_ROWS = "spark.strandline.keptAsRows"
"""The setting of a session under which tables are kept as rows; it is set by the size of input (`session.SMALL`)."""
_ROWS = "LogicalRDD"
_ORIGIN = "_strandline_kept_from"


def kept(made: DataFrame) -> DataFrame:
    """The same table, kept until `let_go`; what does not fit into memory goes to disk.

    A table kept as rows is computed before this returns, and is freed when nothing refers to it any more.
    """
    if is_kept_as_rows(made):
        return made.coalesce(1).localCheckpoint()
    if not has_jvm(made.sparkSession):
        # The plan is out of reach, and the server of Spark Connect analyses a frame's whole origin again at each step.
        return made.localCheckpoint()
    cached = of_its_rows(made).persist(StorageLevel.MEMORY_AND_DISK)
    frame = query_of(plan_of_cached(cached), cached.sparkSession, like=cached)
    setattr(frame, _ORIGIN, cached)
    return frame


def is_kept_as_rows(table: DataFrame) -> bool:
    """Whether `kept` makes the rows of a table at once."""
    return tables_are_rows(table.sparkSession)


def tables_are_rows(spark: SparkSession) -> bool:
    """Whether a session keeps its tables as rows, because its input is small."""
    return spark.conf.get(KEPT_AS_ROWS, "false") == "true"


def let_go(frame: DataFrame) -> None:
    """Stop keeping a table; it can still be read, and is then computed again, unless it was kept as rows."""
    # Not getattr: a frame of Spark Connect takes any name for one of its columns.
    cached: DataFrame = vars(frame).get(_ORIGIN, frame)
    if not has_jvm(cached.sparkSession):
        # The server frees rows when no frame of the client refers to them.
        return
    plan = analyzed_plan(cached)
    if cached is frame and plan.nodeName() == _ROWS:
        plan.rdd().unpersist(False)
    else:
        cached.unpersist()


# ---- places
# Identifies partitions of millions of rows by a number in place of names.
#
# A sample names its partition by cluster, topic id and partition. Carrying, sorting and comparing these costs more than
# computing the figures. Rows of samples therefore have a hash of the names, and results get their names at the end. Two
# partitions may share a hash, once in billions of clusters; then there is no answer, rather than the figures of two
# partitions as one.
#
# Invariant: `numbered` has verified that no two partitions that the control plane reported have the same number.

PLACE = "_place"

GROUP = (PLACE, "window_start", "window_end")
"""The columns by which figures of samples are grouped until they get their names."""


def place(names: Sequence[str] = PARTITION_KEY) -> Column:
    """The number for these names, as the column ``PLACE``; no name may be null."""
    return F.xxhash64(*names).alias(PLACE)


def numbered(groups: DataFrame, by: Sequence[str]) -> DataFrame:
    """Groups, each once, with their number ``PLACE``; a query of it fails if two groups have the same one.

    Args:
        by: the columns that identify the groups; others follow from them.
    """
    proven = F.expr(
        "if(_n = 1, _names, raise_error('two partitions of this export have the same hash of their names. Rule: a "
        "hash names one. Ask about one cluster at a time: --cluster'))"
    )
    found = groups.groupBy(place(by)).agg(F.min(F.struct(*groups.columns)).alias("_names"), F.count("*").alias("_n"))
    return found.select(PLACE, proven.alias("_names")).select(PLACE, "_names.*")


def in_groups(rows: DataFrame, places: DataFrame, scope: Scope) -> DataFrame:
    """Replace ``PLACE`` of rows of partitions by the number of their group in a scope.

    Args:
        places: `numbered` partitions, with the names that the scope's groups have.
    """
    names = scope.grouping.value
    if set(PARTITION_KEY) <= set(names):
        return rows
    groups = places.select(F.col(PLACE), place(names).alias("_group"))
    return rows.join(F.broadcast(groups), PLACE).withColumn(PLACE, F.col("_group")).drop("_group")
