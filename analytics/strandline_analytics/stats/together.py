"""How several statistics are asked for at once: while some are carried out, the next one is planned.

To plan a query takes one thread of Spark's driver, and on what fits one report as long as carrying it out.

Invariant: answers come in the order of the questions; a query has the job tags of its caller, so that it can be
cancelled like one of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame

from strandline_analytics.scope import Scope
from strandline_analytics.session import ascribe_together
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, result

AT_ONCE = 3

_Taken = TypeVar("_Taken")


def together(
    silver: Silver, asked: Sequence[tuple[Statistic, Scope]], take: Callable[[Statistic, DataFrame], _Taken]
) -> Iterator[_Taken]:
    """What ``take`` makes of each statistic and its result, in order.

    It is called in threads, and gets a frame that was not run yet. What it raises is raised in its place; what was not
    begun by then never is.
    """

    def taken(each: tuple[Statistic, Scope]) -> _Taken:
        statistic, scope = each
        return take(statistic, result(statistic, silver, scope))

    ascribe_together(silver.transitions.sparkSession)
    inherited = inheritable_thread_target(silver.transitions.sparkSession)(taken)
    # What reads samples takes longest: begun last, one of these would be waited for alone.
    longest_first = sorted(range(len(asked)), key=lambda place: not asked[place][0].reads_samples)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="statistic") as pool:
        begun = {place: pool.submit(inherited, asked[place]) for place in longest_first}
        try:
            for place in range(len(asked)):
                yield begun.pop(place).result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
