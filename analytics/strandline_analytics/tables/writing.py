"""Writes statistics of closed hours as tables, for further work with Spark: in notebooks, with Spark Connect.

Invariant: the tables equal those that `strandline analytics run --format` writes; the session's settings do not change.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyspark.sql import SparkSession

from strandline_analytics.jobs.ask import Question, chosen
from strandline_analytics.jobs.run import Written, hours_for, run, whole_hours
from strandline_analytics.scope import Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.tables import ResultFormat
from strandline_analytics.tables.hours import HoursInTables
from strandline_analytics.tables.statements import TableNames


def write_tables(
    spark: SparkSession,
    inputs: Sequence[str],
    kind: str,
    *,
    catalog: str | None = None,
    namespace: str = "results",
    names: Sequence[str] = (),
    start_us: int | None = None,
    end_us: int | None = None,
    cluster_id: str | None = None,
    grouping: Grouping = Grouping.PARTITION,
    recompute: bool = False,
) -> Written:
    """Write the closed hours of a window that changed.

    Args:
        spark: any session with a runtime and a catalog of the format, as it is.
        inputs: directories or URIs: roots of exports, or folders of clusters below them.
        kind: `iceberg` or `delta`.
        catalog: the catalog of the tables; None for the session's current one.
        namespace: the namespace in the catalog, with dots between its parts.
        names: statistics, such as `s10`, `S10` or `isr_time`; empty for all.
        start_us: the first moment of the first hour, us since 1970; None for the first event.
        end_us: the moment before which the last hour ends; None for the last event.
        cluster_id: only this cluster; None for all clusters.
        grouping: the subject of a row.
        recompute: also compute hours that did not change.

    Raises:
        ValueError: there is no such statistic, or no such format of tables.
        InputTrouble: see `sources.trouble`.
        NoRuntime: the session has no runtime of the format, or no such catalog.
    """
    found = ResultFormat(kind)
    if not found.is_table:
        raise ValueError(f"{kind} is not a format of tables; there are: iceberg, delta")
    question = whole_hours(
        Question(
            inputs=tuple(inputs),
            statistics=chosen(names or [*ALL]),
            start_us=start_us,
            end_us=end_us,
            cluster_id=cluster_id,
            grouping=grouping,
        )
    )
    hours = hours_for(spark, question, now_us=time.time_ns() // 1_000)
    where = TableNames(catalog=catalog or spark.catalog.currentCatalog(), namespace=namespace)
    return run(spark, question, hours, HoursInTables(spark, found, where, grouping), recompute=recompute)
