"""How two things are asked of Spark at once: while one is planned, which takes one thread, the other is carried out.

Invariant: what is asked has the job tags of its caller, and has ended when this returns or raises.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from strandline_analytics.call_sites import ascribe_together

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
