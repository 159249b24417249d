"""How a table is kept that many queries read: made when first asked for, its origin out of their plans.

Spark keeps what is cached, but plans of all that reads it go on naming everything that led to it. Silver tables stand
on one another, so Catalyst would spend more on analysing a small query than the query takes. Here the plan of a kept
table is one leaf. Spark also describes each query to its listeners, and for that follows what is cached to its own
plan, once for each mention: a table upon tables upon tables would be described a thousand times. So what is cached is
made of rows, whose plan says nothing of their origin either.

Invariant: a kept table has the rows, names and types of what it was made of, and parts of it that are lost are made
again; rows have no origin, and are kept where the process that asks also holds them (`session.session_for`), or where
Spark Connect leaves no other way.
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

    What is kept as rows is made before this returns, and goes when nothing refers to it any more.
    """
    if is_kept_as_rows(made):
        return made.coalesce(1).localCheckpoint()
    if not has_jvm(made.sparkSession):
        # No plan is within reach, and the server of Spark Connect analyses all that led to a frame at each step again.
        return made.localCheckpoint()
    cached = of_its_rows(made).persist(StorageLevel.MEMORY_AND_DISK)
    frame = query_of(plan_of_cached(cached), cached.sparkSession, like=cached)
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
    # Not by getattr: a frame of Spark Connect takes any name for one of its columns.
    cached: DataFrame = vars(frame).get(_ORIGIN, frame)
    if not has_jvm(cached.sparkSession):
        # The server lets go of rows when no frame of the client's refers to them.
        return
    plan = analyzed_plan(cached)
    if cached is frame and plan.nodeName() == _ROWS:
        plan.rdd().unpersist(False)
    else:
        cached.unpersist()


# ---- places
# How millions of rows are distinguished while they are processed: by a number, in place of names.
#
# A sample says in three names which partition it is of: cluster, topic id, partition. To carry, sort and compare these
# costs more than the figures do. Rows of samples are therefore distinguished by a hash of the names, and results are
# given their names at the end. A hash may be shared by two partitions, once in billions of clusters; then nothing is
# answered, rather than the figures of two partitions as one.
#
# Invariant: of the partitions that the control plane reported, `numbered` has proven that no two have one number.

PLACE = "_place"

GROUP = (PLACE, "window_start", "window_end")
"""What figures of samples are grouped by, until they are given their names."""


def place(names: Sequence[str] = PARTITION_KEY) -> Column:
    """The number of what has these names, as the column ``PLACE``; no name may be null."""
    return F.xxhash64(*names).alias(PLACE)


def numbered(groups: DataFrame, by: Sequence[str]) -> DataFrame:
    """Groups, each once, with their number ``PLACE``; a query of it fails if two groups have the same one.

    Args:
        by: the columns that tell the groups apart; others follow from them.
    """
    proven = F.expr(
        "if(_n = 1, _names, raise_error('two partitions of this export have the same hash of their names. Rule: a "
        "hash names one. Ask about one cluster at a time: --cluster'))"
    )
    found = groups.groupBy(place(by)).agg(F.min(F.struct(*groups.columns)).alias("_names"), F.count("*").alias("_n"))
    return found.select(PLACE, proven.alias("_names")).select(PLACE, "_names.*")


def in_groups(rows: DataFrame, places: DataFrame, scope: Scope) -> DataFrame:
    """Let ``PLACE`` of rows of partitions number the group that a scope puts them into.

    Args:
        places: `numbered` partitions, with the names that the scope's groups have.
    """
    names = scope.grouping.value
    if set(PARTITION_KEY) <= set(names):
        return rows
    groups = places.select(F.col(PLACE), place(names).alias("_group"))
    return rows.join(F.broadcast(groups), PLACE).withColumn(PLACE, F.col("_group")).drop("_group")
