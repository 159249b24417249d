"""`strandline analytics run`: computes the closed hours of a window and writes them, as Parquet or as tables.

Invariant: the hours that were not written are listed, with the reason; exit code 4 means that the input is less
complete than was required, and that nothing was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.durations import read_duration, time_text
from strandline_analytics.commands import options
from strandline_analytics.commands.answers import Catalog, FormatOption, Namespace, destination_of
from strandline_analytics.commands.coverage import now_us, reported
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, is_submitted, spark_session
from strandline_analytics.commands.stats import statistics_of
from strandline_analytics.tables import ResultFormat

if TYPE_CHECKING:
    from strandline_analytics.jobs.run import Written

HOUR = read_duration("1h")

Stats = Annotated[str, typer.Option("--stat", metavar="S1,S10", help="The statistics; `all` for every one.")]
OutDir = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR|URI", help="Files go to DIR/results/stat=...; of tables it is the warehouse."),
]

Recompute = Annotated[
    bool, typer.Option("--recompute", help="Also compute hours whose files and version did not change.")
]


def run(
    inputs: options.Inputs,
    out: OutDir = None,
    stat: Stats = "all",
    start: options.From = None,
    end: options.To = None,
    cluster: options.Cluster = None,
    group_by: options.GroupBy = "topic,partition",
    step: options.Step = HOUR,
    require_coverage: options.RequireCoverage = None,
    recompute: Recompute = False,
    kind: FormatOption = ResultFormat.PARQUET,
    catalog: Catalog = None,
    namespace: Namespace = None,
    memory: options.Memory = DEFAULT_MEMORY,
) -> None:
    """Compute every closed hour that the window touches and whose files changed, and replace its results."""
    check_installed()
    if step != HOUR:
        raise typer.BadParameter("--step: results are written by the hour; for other steps: strandline analytics stats")
    from strandline_analytics.jobs.ask import Question
    from strandline_analytics.stats import ALL

    start_us, end_us = options.window_us(start, end)
    question = Question(
        inputs=tuple(options.existing(inputs)),
        statistics=statistics_of([*ALL] if stat == "all" else [stat]),
        start_us=start_us,
        end_us=end_us,
        cluster_id=cluster,
        grouping=options.grouping_of(group_by),
    )
    destination = destination_of(kind, out=out, catalog=catalog, namespace=namespace, is_given=is_submitted())
    with spark_session(memory, settings=destination.settings) as spark:
        from strandline_analytics.jobs import run as job
        from strandline_analytics.jobs.coverage import require

        whole = job.whole_hours(question)
        hours = job.hours_for(spark, whole, now_us=now_us())
        if require_coverage is not None:
            require(hours, require_coverage)
        results = destination.results(spark, whole.grouping)
        written = job.run(spark, whole, hours, results, noticed=reported, recompute=recompute)
    _tell(written)


def _tell(written: Written) -> None:
    for hour in written.left_out:
        reason = (
            "it is open: an emitter has not sent a later event yet"
            if hour.emitters
            else "no emitter sent an event in it"
        )
        typer.echo(f"{hour.cluster_id} {time_text(hour.hour * HOUR.us)} not written: {reason}", err=True)
    for hour in written.hours:
        if hour.state.value == "closed_incomplete":
            said = f"closed_incomplete, coverage {hour.coverage:.4f}, {hour.missing} events missing"
            typer.echo(f"{hour.cluster_id} {time_text(hour.hour * HOUR.us)} {said}", err=True)
    count = len(written.hours) - len(written.left_out)
    rows = sum(written.rows.values())
    same = f", {len(written.unchanged)} of them unchanged" if written.unchanged else ""
    typer.echo(f"{written.folder}: {count} hours{same}, {len(written.rows)} statistics, {rows} rows")
