"""Provides statistics as DataFrames, for further work with Spark: joins, tables, plots.

Invariant: a frame has the rows that `strandline analytics stats` prints for the same question, with a TIMESTAMP next to
each moment, and belongs to the session that asked, whose settings do not change.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from strandline_analytics.jobs.ask import Question, chosen, files_for, scope_of
from strandline_analytics.scope import Grouping, with_times
from strandline_analytics.session import carried_out_in
from strandline_analytics.sources.exports import read_exports
from strandline_analytics.stats.definition import result, with_any_value


def statistics(
    spark: SparkSession,
    inputs: Sequence[str],
    names: Sequence[str],
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    step_us: int | None = None,
    cluster_id: str | None = None,
    grouping: Grouping = Grouping.PARTITION,
) -> dict[str, DataFrame]:
    """One frame for each statistic, by its id; rows are computed on demand.

    Args:
        spark: any session, as it is.
        inputs: directories or URIs: roots of exports, or folders of clusters below them.
        names: statistics, such as `s10`, `S10` or `isr_time`.
        start_us: the start of the question, us since 1970; None for the first event.
        end_us: the moment before which it ends; None for the last event.
        step_us: the length of a window, us; None for one window.
        cluster_id: only this cluster; None for all clusters.
        grouping: the subject of a row.

    Raises:
        ValueError: there is no such statistic.
        InputTrouble: see `sources.trouble`.
        ConflictingEvents: one event id has two contents.
    """
    question = Question(
        inputs=tuple(inputs),
        statistics=chosen(names),
        start_us=start_us,
        end_us=end_us,
        step_us=step_us,
        cluster_id=cluster_id,
        grouping=grouping,
    )
    files = files_for(spark, question)
    scope = scope_of(spark, question, files)
    silver = read_exports(spark, files, samples=question.reads_samples)
    found = {one.id: with_times(with_any_value(one, silver, result(one, silver, scope))) for one in question.statistics}
    return {name: carried_out_in(spark, frame) for name, frame in found.items()}
