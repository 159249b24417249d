"""`strandline analytics report`: one HTML file that shows what happened, to be kept, mailed or printed.

Invariant: the file is written whole or not at all; what was found is printed too, so a script needs not read HTML.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline_analytics.commands.options import Cluster, From, Memory, To, window_us
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, spark_session
from strandline_analytics.commands.remote import DEADLINE_S, MaybeInputs, Service, ask, one_source, range_of

if TYPE_CHECKING:
    from strandline.v1 import analytics_service_pb2 as pb
    from strandline_analytics.report.gather import Reported
    from strandline_analytics.report.material import Material

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
    plain_progress: Annotated[bool, typer.Option("--plain-progress", hidden=True)] = False,
) -> None:
    """Write a report of a window: verdict, incidents as lanes, the statistics, and how each was computed."""
    own = one_source(inputs, service)
    start_us, end_us = window_us(start, end)
    if not out.resolve().parent.is_dir():
        raise typer.BadParameter(f"--out: the directory {out.resolve().parent} is not there")
    if service:
        request = _request(start_us, end_us, cluster, steps)
        _tell(_from_service(service, request), out, figures)
        return
    check_installed()
    with (
        ThreadPoolExecutor(1, thread_name_prefix="page") as beside,
        spark_session(memory, progress=not plain_progress, inputs=own, meanwhile=_imported) as spark,
    ):
        from strandline_analytics.report.gather import TooMuch, gather
        from strandline_analytics.sources.exports import open_exports

        silver = open_exports(spark, own, start_us=start_us, end_us=end_us, cluster_id=cluster)
        try:
            material = gather(
                silver, own, start_us=start_us, end_us=end_us, steps=steps, reported=_teller(plain=plain_progress)
            )
        except (TooMuch, ValueError) as error:
            raise fail(CommandFailed(str(error), EXIT_REFUSED)) from error
        # The page needs no Spark, which takes up to a second to stop.
        made = beside.submit(_made, material)
    _tell(made.result(), out, figures)


def _imported() -> None:
    """Import what the report needs."""
    import strandline_analytics.report.gather
    import strandline_analytics.report.page  # noqa: F401


def _made(material: Material) -> Made:
    from strandline_analytics.report.page import page, render

    shown = page(material)
    return Made(
        verdict=shown["verdict"].sentence,
        troubles=shown["data"]["troubles"],
        page=render(material),
        figures=json.dumps(shown["data"], indent=2) + "\n",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A report, by whomever it was made."""

    verdict: str
    troubles: Mapping[str, str]
    page: str
    figures: str


def _request(start_us: int | None, end_us: int | None, cluster: str | None, steps: int) -> pb.GetReportRequest:
    from strandline.v1 import analytics_service_pb2 as pb

    return pb.GetReportRequest(range=range_of(start_us, end_us), cluster_id=cluster or "", steps=steps)


def _from_service(service: str, request: pb.GetReportRequest) -> Made:
    async def asked(stub: Any) -> Made:
        verdict, troubles, page, figures = "", {}, bytearray(), bytearray()
        async for part in stub.GetReport(request, timeout=DEADLINE_S):
            if part.WhichOneof("part") == "found":
                verdict, troubles = part.found.verdict, dict(part.found.troubles)
            page += part.page
            figures += part.figures
        return Made(verdict=verdict, troubles=troubles, page=page.decode(), figures=figures.decode())

    return ask(service, asked)


def _tell(made: Made, out: Path, figures: Path | None) -> None:
    _write(out, made.page)
    if figures is not None:
        _write(figures, made.figures)
    typer.echo(made.verdict)
    for name, trouble in made.troubles.items():
        typer.echo(f"{name}: {trouble}", err=True)
    typer.echo(f"{out.resolve()}")


def _teller(*, plain: bool) -> Reported:
    """For a program that shows progress itself: one line of JSON for each part, on stderr."""

    def tell(what: str, done: int, parts: int) -> None:
        if plain:
            typer.echo(json.dumps({"what": what, "done": done, "parts": parts}), err=True)

    return tell


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
