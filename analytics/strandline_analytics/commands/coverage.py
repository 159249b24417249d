"""`strandline analytics coverage`: shows how much of every hour is there, and which hours are over.

Invariant: problems of the input that are not failures are written to stderr, one line each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.durations import time_text
from strandline.cli.output import Column, Format, print_document, show
from strandline_analytics.commands import options
from strandline_analytics.commands.progress import DEFAULT_MEMORY, failures_reported, spark_session
from strandline_analytics.commands.remote import MaybeInputs, Service, coverage_of, hours_of, one_source

if TYPE_CHECKING:
    from strandline.v1 import analytics_service_pb2 as pb
    from strandline_analytics.jobs.ask import Question
    from strandline_analytics.jobs.coverage import HourCoverage
    from strandline_analytics.session import Session

_NUMBERS = ("emitters", "events", "missing", "reported lost", "copies", "unknown", "newer")
_HOUR_US = 3_600_000_000


def coverage(
    inputs: MaybeInputs = None,
    service: Service = "",
    start: options.From = None,
    end: options.To = None,
    cluster: options.Cluster = None,
    require_coverage: options.RequireCoverage = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare every file with the hash in its manifest; reads each file completely."),
    ] = False,
    output: options.ShownAs = options.Shown.TABLE,
    memory: options.Memory = DEFAULT_MEMORY,
) -> None:
    """Show for each hour how many of its events are there, and whether it is closed."""
    start_us, end_us = options.window_us(start, end)
    own = options.existing(one_source(inputs, service))
    if service:
        if verify:
            raise typer.BadParameter("--verify: a service does not read every file; ask the export itself: --input")
        _tell_answer(coverage_of(service, start_us, end_us, cluster), output, require_coverage)
        return
    with spark_session(memory, inputs=own) as spark:
        from strandline_analytics.jobs.coverage import covered, files_of_hours, hash_of_hour, require
        from strandline_analytics.sources.inspection import inspect, notices, verify as verified

        missing: list[str] = []
        files = files_of_hours(spark, own, start_us=start_us, end_us=end_us, cluster_id=cluster, noticed=missing.append)
        reported([*missing, *notices(files)])
        if verify:
            inspect(files)
            reported([f"{verified(spark, files)} of {len(files)} files are what their manifests prove"])
        hours = covered(spark, files, now_us=now_us(), start_us=start_us, end_us=end_us)
        rows = [
            _row(hour) | {"input_manifest_hash": hash_of_hour(files, hour.cluster_id, hour.hour, samples=True)}
            for hour in hours
        ]
        _show(rows, output)
        if require_coverage is not None:
            require(hours, require_coverage)


def _tell_answer(answer: pb.GetCoverageResponse, output: options.Shown, least: float | None) -> None:
    reported(answer.notes)
    hours = hours_of(answer)
    hashes = [hour.input_manifest_hash for hour in answer.hours]
    rows = zip(hours, hashes, strict=True)
    _show([_row(hour) | {"input_manifest_hash": input_hash} for hour, input_hash in rows], output)
    if least is not None:
        require_hours(hours, least)


def require_hours(hours: Sequence[HourCoverage], least: float) -> None:
    """End the command with `EXIT_INCOMPLETE` if an hour that a service reported is less complete than ``least``.

    Raises:
        typer.Exit: an hour is.
    """
    from strandline_analytics.jobs.coverage import require

    with failures_reported():
        require(hours, least)


def check_coverage(spark: Session, question: Question, least: float) -> None:
    """Refuse a question whose input is less complete than was asked for.

    Raises:
        Incomplete: the input is; the error names the worst hour.
    """
    from strandline_analytics.jobs.coverage import covered, files_of_hours, require

    files = files_of_hours(
        spark, question.inputs, cluster_id=question.cluster_id, start_us=question.start_us, end_us=question.end_us
    )
    require(covered(spark, files, now_us=now_us(), start_us=question.start_us, end_us=question.end_us), least)


def reported(sentences: Sequence[str]) -> None:
    """Print remarks on the input to stderr."""
    for sentence in sentences:
        typer.echo(f"strandline: note: {sentence}", err=True)


def now_us() -> int:
    """The current time, in microseconds since 1970."""
    return time.time_ns() // 1_000


def _show(rows: Sequence[dict[str, Any]], form: options.Shown) -> None:
    if form not in (options.Shown.TABLE, options.Shown.WIDE):
        print_document(list(rows), Format(form.value))
        return
    names = ["cluster", "hour", "state", "coverage", *_NUMBERS]
    if form is options.Shown.WIDE:
        names += ["unknown types", "not heard after", "ended without a word", "input_manifest_hash"]
    columns = [Column(name, name, number=name in (*_NUMBERS, "coverage")) for name in names]
    show(rows, columns, Format.TABLE, empty="no hours")


def _row(hour: HourCoverage) -> dict[str, Any]:
    return {
        "cluster": hour.cluster_id,
        "hour": time_text(hour.hour * _HOUR_US),
        "state": hour.state.value,
        "coverage": f"{hour.coverage:.4f}",
        "emitters": hour.emitters,
        "events": hour.events,
        "missing": hour.missing,
        "reported lost": hour.told_lost,
        "copies": hour.copies,
        "unknown": hour.unknown,
        "newer": hour.newer,
        "unknown types": sorted(hour.unknown_types),
        "not heard after": sorted(hour.unproven),
        "ended without a word": sorted(hour.restarted),
    }
