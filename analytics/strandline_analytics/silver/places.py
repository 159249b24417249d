"""How millions of rows are distinguished while they are processed: by a number, in place of names.

A sample says in three names which partition it is of: cluster, topic id, partition. To carry, sort and compare these
costs more than the figures do. Rows of samples are therefore distinguished by a hash of the names, and results are
given their names at the end. A hash may be shared by two partitions, once in billions of clusters; then nothing is
answered, rather than the figures of two partitions as one.

Invariant: of the partitions that the control plane reported, `numbered` has proven that no two have one number.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope

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
