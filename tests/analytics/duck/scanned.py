"""The files from which a table is read, kept tables included with their origin."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from strandline_analytics.jvm import analyzed_plan, of_its_rows

_READ: dict[int, set[str]] = {}
"""By the rows of a kept table, whose plan does not say it: the files that they are read from."""


def noted_rows(query: DataFrame) -> DataFrame:
    """`jvm.of_its_rows`, for `silver.kept`: what `scanned` needs."""
    rows = of_its_rows(query)
    _READ[analyzed_plan(rows).rdd().id()] = scanned(query)
    return rows


def scanned(frame: DataFrame) -> set[str]:
    """The files at the leaves of a logical plan."""
    read: set[str] = set()
    plans: list[Any] = [analyzed_plan(frame)]
    while plans:
        leaves = plans.pop().collectLeaves()
        for leaf in (leaves.apply(i) for i in range(leaves.size())):
            if leaf.nodeName().startswith("InMemoryRelation"):
                plans.append(leaf.cacheBuilder().logicalPlan())
            elif leaf.nodeName() == "LogicalRDD":
                read |= _READ[leaf.rdd().id()]
            elif leaf.nodeName().startswith("LogicalRel"):
                read |= {str(path) for path in leaf.relation().location().inputFiles()}
    return read


def datasets(frame: DataFrame) -> set[str]:
    """``transitions``, ``samples``, or both."""
    return {path.rpartition("/v1/")[2].partition("/")[0] for path in scanned(frame)}
