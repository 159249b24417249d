"""`strandline analytics stats`: lists the statistics, or computes and shows some of them.

Invariant: the names of filters are those of `kafka-topics --describe`; a threshold applies to the rows that are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import CommandFailed, fail
from strandline_analytics.commands import options
from strandline_analytics.commands.answers import UNAVAILABLE, Absent, Answer, show_answers, show_list, who
from strandline_analytics.commands.coverage import check_coverage, reported, require_hours
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, spark_session
from strandline_analytics.commands.remote import MaybeInputs, Service, answers_of, coverage_of, hours_of, one_source

if TYPE_CHECKING:
    from strandline_analytics.jobs.ask import Question, Threshold
    from strandline_analytics.sources.kafka.source_words import Levels
    from strandline_analytics.stats.definition import Statistic

_FILTERED = "s10"
"""The statistic that the filters of `kafka-topics` apply to."""
_STATES = ("s10.under_replicated_us>0", "s10.at_min_us>0", "s10.under_min_us>0", "s10.leaderless_us>0")
"""The conditions of `--under-replicated-partitions`, `--at-min-isr-partitions`, `--under-min-isr-partitions` and
`--unavailable-partitions`."""
_THOSE = "Only those, by s10."

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STAT]...", help="Statistics by number or name, as s10 or isr_time; none: list all."),
]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="CONDITION", help="Only rows for which 'under_min_ms>0' holds.")
]
FailOn = Annotated[
    list[str] | None,
    typer.Option("--fail-on", metavar="CONDITION", help="Exit with 3 if the condition holds for a row that is shown."),
]


RequireAvailable = Annotated[
    bool,
    typer.Option("--require-available", help="Exit with 4 if an export of Kafka's history lacks a figure asked for."),
]


def stats(
    names: Names = None,
    inputs: MaybeInputs = None,
    service: Service = "",
    start: options.From = None,
    end: options.To = None,
    cluster: options.Cluster = None,
    group_by: options.GroupBy = "topic,partition",
    step: options.MaybeStep = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only rows of this topic.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only rows of this partition.")] = None,
    under_replicated: Annotated[bool, typer.Option("--under-replicated-partitions", help=_THOSE)] = False,
    at_min: Annotated[bool, typer.Option("--at-min-isr-partitions", help=_THOSE)] = False,
    under_min: Annotated[bool, typer.Option("--under-min-isr-partitions", help=_THOSE)] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable-partitions", help=_THOSE)] = False,
    where: Where = None,
    fail_on: FailOn = None,
    require_coverage: options.RequireCoverage = None,
    require_available: RequireAvailable = False,
    output: options.ShownAs = options.Shown.TABLE,
    memory: options.Memory = DEFAULT_MEMORY,
) -> None:
    """List the statistics, or compute some of them and show their rows."""
    if not service:
        check_installed()
    filters = [
        condition
        for condition, given in zip(_STATES, (under_replicated, at_min, under_min, unavailable), strict=True)
        if given
    ]
    wanted = [*(names or []), *([_FILTERED] if filters else [])]
    if not wanted:
        from strandline_analytics.stats import ALL

        show_list(list(ALL.values()), output)
        return
    own = one_source(inputs, service)
    if service and require_available:
        raise typer.BadParameter("--require-available: what is available is asked of the export itself; use --input")
    from strandline_analytics.jobs.ask import Question

    start_us, end_us = options.window_us(start, end)
    question = Question(
        inputs=tuple(options.existing(own)),
        statistics=statistics_of(wanted),
        start_us=start_us,
        end_us=end_us,
        cluster_id=cluster,
        step_us=None if step is None else step.us,
        grouping=options.grouping_of(group_by),
    )
    asked = _conditions([*(where or []), *filters], question.statistics, "--where")
    limits = _conditions(fail_on or [], question.statistics, "--fail-on")
    only = {"topic": topic, "partition": partition}
    computed, absent = (
        _from_service(service, question, require_coverage)
        if service
        else _computed(question, require_coverage, memory, require_available=require_available)
    )
    answers = [
        (one, [row for row in rows if _is_asked(row, only) and all(_holds(each, row) is not False for each in asked)])
        for one, rows in computed
    ]
    show_answers(answers, output, absent)
    _check_limits(limits, [row for _, rows in answers for row in rows])


def _check_limits(limits: Sequence[Threshold], rows: Sequence[dict[str, Any]]) -> None:
    """Raises typer.Exit if a row breaches one of the limits."""
    breached = [f"{limit.text}: {who(row)}" for limit in limits for row in rows if _holds(limit, row)]
    for line in breached:
        typer.echo(f"strandline: threshold breached, {line}", err=True)
    if breached:
        raise typer.Exit(options.EXIT_THRESHOLD)


def statistics_of(names: Sequence[str]) -> tuple[Statistic, ...]:
    """The named statistics; names come one by one or in lists with commas.

    Raises:
        typer.BadParameter: one of them does not exist.
    """
    from strandline_analytics.jobs.ask import chosen

    try:
        return chosen([part.strip() for name in names for part in name.split(",") if part.strip()])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _from_service(service: str, question: Question, coverage: float | None) -> tuple[list[Answer], list[Absent]]:
    if coverage is not None:
        answer = coverage_of(service, question.start_us, question.end_us, question.cluster_id)
        require_hours(hours_of(answer), coverage)
    rows, notes = answers_of(service, question)
    reported(notes)
    return list(zip(question.statistics, rows, strict=True)), []


def _computed(
    question: Question, coverage: float | None, memory: str, *, require_available: bool = False
) -> tuple[list[Answer], list[Absent]]:
    from strandline_analytics.jobs.ask import answers, files_for
    from strandline_analytics.sources.inspection import notices
    from strandline_analytics.sources.kafka.availability import bounded, unavailable
    from strandline_analytics.sources.kafka.source_words import levels_of, looking

    with spark_session(memory, inputs=question.inputs) as spark:
        missing: list[str] = []
        files = files_for(spark, question, missing.append)
        asked = [(one.id, [value.name for value in one.values]) for one in question.statistics]
        clusters = levels_of(files)
        lacks = list(unavailable(asked, clusters))
        reported([*missing, *notices(files), *lacks, *bounded(asked, clusters, looking(files))])
        if lacks and require_available:
            raise fail(
                CommandFailed(
                    "--require-available: figures that were asked for are not recorded", options.EXIT_INCOMPLETE
                )
            )
        if coverage is not None:
            check_coverage(spark, question, coverage)
        found = [
            (one, [_with_reasons(one, row, clusters) for row in rows])
            for one, rows in answers(spark, question, files, reported)
        ]
        return found, list(_absent(asked, clusters))


def _absent(asked: Iterable[tuple[str, Sequence[str]]], clusters: Levels) -> Iterator[Absent]:
    """The entries printed in place of rows, for each statistic of which a cluster's export gives no figure."""
    from strandline_analytics.sources.kafka.availability import is_unavailable, lacking

    for statistic, figures in asked:
        for cluster, levels in sorted(clusters.items()):
            if is_unavailable(statistic, figures, levels):
                yield {"stat": statistic, "cluster_id": cluster, UNAVAILABLE: lacking(statistic, figures, levels)}


def _with_reasons(statistic: Statistic, row: dict[str, Any], clusters: Levels) -> dict[str, Any]:
    """The row, with the reason for each figure that is null because the cluster's export lacks it."""
    from strandline_analytics.sources.kafka.availability import lacking

    levels = clusters.get(row["cluster_id"])
    reasons = {} if levels is None else lacking(statistic.id, [value.name for value in statistic.values], levels)
    return row | {UNAVAILABLE: reasons} if reasons else row


def _conditions(texts: Sequence[str], statistics: Sequence[Statistic], option: str) -> list[Threshold]:
    from strandline_analytics.jobs.ask import Threshold

    found = []
    for text in texts:
        try:
            condition = Threshold.parse(text)
        except ValueError as error:
            raise typer.BadParameter(f"{option}: {error}") from None
        about = [one for one in statistics if condition.stat in (None, one.id)]
        names = {value.name for one in about for value in (*one.extra, *one.values)} | {"coverage"}
        if condition.column(names) is None:
            said = f"{condition.name} is not a column of {', '.join(one.id for one in about) or condition.stat}"
            raise typer.BadParameter(f"{option}: {said}; there are: {', '.join(sorted(names))}")
        found.append(condition)
    return found


def _is_asked(row: dict[str, Any], only: dict[str, Any]) -> bool:
    return all(value is None or row.get(name) == value for name, value in only.items())


def _holds(condition: Threshold, row: dict[str, Any]) -> bool | None:
    """Whether a condition holds for a row; None if the row has no such column."""
    if condition.stat not in (None, row["stat"]) or condition.column(row.keys()) is None:
        return None
    return condition.holds(row)
