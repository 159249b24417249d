"""`strandline analytics report`: writes one HTML file that shows what happened, to be kept, mailed or printed.

Invariant: the file is written whole or not at all; the findings are printed too, so a script need not read HTML.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline_analytics.commands.options import Cluster, From, Memory, To, window_us
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, spark_session
from strandline_analytics.commands.remote import DEADLINE_S, MaybeInputs, Service, ask, one_source, range_of
from strandline_analytics.report import Report

OutFile = Annotated[Path, typer.Option("--out", metavar="FILE", help="The HTML file; replaced if it exists.")]


def report(
    inputs: MaybeInputs = None,
    service: Service = "",
    out: OutFile = Path("strandline-report.html"),
    start: From = None,
    end: To = None,
    cluster: Cluster = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="FILE", help="Also write the page's figures to this file, as JSON."),
    ] = None,
    memory: Memory = DEFAULT_MEMORY,
    steps: Annotated[int, typer.Option("--steps", min=1, max=200, help="Bars of each small chart.")] = 40,
) -> None:
    """Write a report of a window: verdict, incidents as lanes, the statistics, and how each was computed."""
    own = one_source(inputs, service)
    start_us, end_us = window_us(start, end)
    if not out.resolve().parent.is_dir():
        raise typer.BadParameter(f"--out: the directory {out.resolve().parent} does not exist")
    if service:
        _tell(_from_service(service, start_us, end_us, cluster, steps), out, figures)
        return
    check_installed()
    with (
        ThreadPoolExecutor(1, thread_name_prefix="page") as beside,
        spark_session(memory, inputs=own, meanwhile=_imported) as spark,
    ):
        from strandline_analytics.report.gather import TooMuch, gather
        from strandline_analytics.report.page import report_of
        from strandline_analytics.sources.exports import open_exports

        silver = open_exports(spark, own, start_us=start_us, end_us=end_us, cluster_id=cluster)
        try:
            material = gather(silver, own, start_us=start_us, end_us=end_us, steps=steps)
        except (TooMuch, ValueError) as error:
            raise fail(CommandFailed(str(error), EXIT_REFUSED)) from error
        # The page is made after the session ends: it needs no Spark, which takes up to a second to stop.
        made = beside.submit(report_of, material)
    _tell(made.result(), out, figures)


def _imported() -> None:
    """Import the modules that the report needs."""
    import strandline_analytics.report.gather
    import strandline_analytics.report.page  # noqa: F401


def _from_service(service: str, start_us: int | None, end_us: int | None, cluster: str | None, steps: int) -> Report:
    from strandline.v1 import analytics_service_pb2 as pb

    request = pb.GetReportRequest(range=range_of(start_us, end_us), cluster_id=cluster or "", steps=steps)

    async def asked(stub: Any) -> Report:
        verdict, troubles, page, figures = "", {}, bytearray(), bytearray()
        async for part in stub.GetReport(request, timeout=DEADLINE_S):
            if part.WhichOneof("part") == "found":
                verdict, troubles = part.found.verdict, dict(part.found.troubles)
            page += part.page
            figures += part.figures
        return Report(verdict=verdict, troubles=troubles, page=page.decode(), figures=figures.decode())

    return ask(service, asked)


def _tell(made: Report, out: Path, figures: Path | None) -> None:
    made.write(out, figures)
    typer.echo(made.verdict)
    for name, trouble in made.troubles.items():
        typer.echo(f"{name}: {trouble}", err=True)
    typer.echo(f"{out.resolve()}")
