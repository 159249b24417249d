"""The options that the commands of `strandline analytics` share, and the functions that read their values.

Invariant: all other code handles times only as microseconds since 1970. Exit codes are 0 fine, 1 failure, 2 usage,
3 threshold, 4 incomplete input.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.durations import FORMS, Duration, duration_option, read_moment_us
from strandline.cli.output import Format

if TYPE_CHECKING:
    from strandline_analytics.scope import Grouping

EXIT_THRESHOLD = 3
EXIT_INCOMPLETE = 4

Inputs = Annotated[
    list[str],
    typer.Option("--input", "-i", metavar="DIR|URI", help="The export_dir or export_uri of services; repeatable."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help=f"Start: {FORMS}. Without it: the beginning."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="End, exclusive, in the format of --from. Default: the end of the data."),
]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="ID", help="Only this cluster.")]
GroupBy = Annotated[
    str, typer.Option("--group-by", metavar="KEYS", help="topic,partition or topic or cluster: one row for each.")
]
RequireCoverage = Annotated[
    float | None,
    typer.Option("--require-coverage", min=0.0, max=1.0, help="Exit with 4 if the input is less complete."),
]
STEP_HELP = "A row for each of so long, as 1m, 1h or 1d."
Step = Annotated[Duration, duration_option("--step", help=STEP_HELP, least="1us")]
MaybeStep = Annotated[Duration | None, duration_option("--step", help=STEP_HELP, least="1us")]
Memory = Annotated[
    str,
    typer.Option("--memory", envvar="STRANDLINE_ANALYTICS_MEMORY", help="Memory of the embedded Spark, such as 512m."),
]


class Shown(StrEnum):
    """The forms of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


ShownAs = Annotated[
    Shown,
    typer.Option("--output", "-o", help="Table for people, wide with every column; json, yaml or csv for programs."),
]


def form_of(output: Shown) -> Format:
    """The format of a document or a table; the caller handles wide tables."""
    return Format.TABLE if output is Shown.WIDE else Format(output.value)


def moment_us(text: str | None, option: str) -> int | None:
    """A time in microseconds since 1970; None stays None.

    Raises:
        typer.BadParameter: it is not a valid time.
    """
    return None if text is None else read_moment_us(text, option)


def window_us(start: str | None, end: str | None) -> tuple[int | None, int | None]:
    """Both ends of a window.

    Raises:
        typer.BadParameter: one is not a valid time, or they are in the wrong order.
    """
    start_us, end_us = moment_us(start, "--from"), moment_us(end, "--to")
    if start_us is not None and end_us is not None and end_us <= start_us:
        raise typer.BadParameter("--to must be after --from")
    return start_us, end_us


def grouping_of(text: str) -> Grouping:
    """The grouping that `--group-by` names.

    Raises:
        typer.BadParameter: no such grouping.
    """
    from strandline_analytics.scope import Grouping

    known = {("partition", "topic"): Grouping.PARTITION, ("topic",): Grouping.TOPIC, ("cluster",): Grouping.CLUSTER}
    keys = tuple(sorted({key.strip() for key in text.split(",") if key.strip()} - {"cluster"})) or ("cluster",)
    if keys not in known:
        raise typer.BadParameter(f"--group-by: {text!r} is none of: topic,partition  topic  cluster")
    return known[keys]


def existing(inputs: Iterable[str]) -> list[str]:
    """The inputs, after a check that those of this machine exist.

    Raises:
        typer.BadParameter: one is not a directory.
    """
    for one in inputs:
        if "://" not in one and not Path(one).is_dir():
            raise typer.BadParameter(f"--input: {one} is not a directory; give the export_dir of services, or a URI")
    return list(inputs)
