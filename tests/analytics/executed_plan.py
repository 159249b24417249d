"""What Spark is about to do for a query: the physical plan before it runs, kept tables as leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

SHUFFLE = "Exchange"
KEPT = "InMemoryTableScan"


def paths(query: DataFrame) -> Iterator[list[str]]:
    """The names of the operators from the result down to each leaf; what made a kept table is not part of it."""
    return _below(query._jdf.queryExecution().executedPlan(), [])


def _below(operator: Any, above: list[str]) -> Iterator[list[str]]:
    name = operator.nodeName()
    if name == "AdaptiveSparkPlan":
        yield from _below(operator.executedPlan(), above)
        return
    if name == "TableCacheQueryStage":
        yield from _below(operator.plan(), above)
        return
    children = operator.children()
    if not children.size():
        yield [*above, name]
    for child in (children.apply(place) for place in range(children.size())):
        yield from _below(child, [*above, name])
