"""The files from which a table is read, cached tables included with their origin."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


def scanned(frame: DataFrame) -> set[str]:
    """The files at the leaves of a logical plan."""
    scans: list[Any] = []
    plans: list[Any] = [frame._jdf.queryExecution().analyzed()]
    while plans:
        leaves = plans.pop().collectLeaves()
        for leaf in (leaves.apply(i) for i in range(leaves.size())):
            if leaf.nodeName().startswith("InMemoryRelation"):
                plans.append(leaf.cacheBuilder().logicalPlan())
            elif leaf.nodeName().startswith("LogicalRel"):
                scans.append(leaf)
    return {str(path) for scan in scans for path in scan.relation().location().inputFiles()}


def datasets(frame: DataFrame) -> set[str]:
    """``transitions``, ``samples``, or both."""
    return {path.rpartition("/v1/")[2].partition("/")[0] for path in scanned(frame)}
