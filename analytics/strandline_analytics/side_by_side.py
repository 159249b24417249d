"""How two things are asked of Spark at once: while one is planned, which takes one thread, the other is carried out.

Invariant: what is asked has the job tags of its caller, and has ended when this returns or raises.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from strandline_analytics.silver.kept import tables_are_rows

# ---- call_sites
# Which line a Spark job is ascribed to: one name for all, where nobody looks at jobs one by one.
#
# For each step of each query Spark walks the stack of its thread to find the line that asked for it: over little input
# a twentieth of a report's time.
#
# Invariant: over larger input, whose jobs people look at, they are ascribed as ever.

_PROPERTIES = ("callSite.short", "callSite.long")


def ascribe_together(spark: SparkSession, name: str = "strandline") -> None:
    """Ascribe what this thread asks of Spark to ``name``, until it has collected an answer; threads inherit it."""
    if not tables_are_rows(spark):
        return
    context = spark.sparkContext
    for each in _PROPERTIES:
        context.setLocalProperty(each, name)


_First = TypeVar("_First")
_Second = TypeVar("_Second")


def side_by_side(
    spark: SparkSession, first: Callable[[], _First], second: Callable[[], _Second]
) -> tuple[_First, _Second]:
    """What both return; ``second`` is called in a thread of its own. If both raise, the error is that of ``first``."""
    ascribe_together(spark)
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as pool:
        beside = pool.submit(inheritable_thread_target(spark)(second))
        return first(), beside.result()
