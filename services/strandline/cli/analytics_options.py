"""The options that the commands of `strandline analytics` share, and how their values are read.

Invariant: times are accepted as RFC 3339, as milliseconds since 1970 and as `-2h` before now; everything behind this
file knows microseconds since 1970 only. Exit codes are 0 fine, 1 failure, 2 usage, 3 threshold, 4 incomplete input.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from strandline_analytics.scope import Grouping

EXIT_THRESHOLD = 3
EXIT_INCOMPLETE = 4

_BACK = re.compile(r"-(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")
_LENGTH = re.compile(r"(\d+)(us|ms|s|m|h|d)")
_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_NAMED_STEPS_US = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}

Inputs = Annotated[
    list[str],
    typer.Option("--input", "-i", metavar="DIR|URI", help="The export_dir or export_uri of services; repeatable."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Start: RFC 3339, ms since 1970, or -2h. Without it: the beginning."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="End, not included, as --from. Without it: the end of what is there."),
]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="ID", help="Only this cluster.")]
GroupBy = Annotated[
    str, typer.Option("--group-by", metavar="KEYS", help="topic,partition or topic or cluster: one row for each.")
]
RequireCoverage = Annotated[
    float | None,
    typer.Option("--require-coverage", min=0.0, max=1.0, help="End with exit code 4 where less of the input is there."),
]
Memory = Annotated[
    str, typer.Option("--memory", envvar="STRANDLINE_ANALYTICS_MEMORY", help="Of the embedded Spark, as 2g or 512m.")
]


class Shown(StrEnum):
    """The forms of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


ShownAs = Annotated[
    Shown, typer.Option("--output", "-o", help="Table for people, wide with every column, json or yaml for programs.")
]


def moment_us(text: str | None, option: str) -> int | None:
    """A time in microseconds since 1970; None stays None.

    Raises:
        typer.BadParameter: it is no time.
    """
    if text is None:
        return None
    if back := _BACK.fullmatch(text):
        return time.time_ns() // 1_000 - round(float(back[1]) * _UNITS_US[back[2]])
    if text.isdigit():
        return int(text) * 1_000
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: {text!r} is no time; write 2026-11-21T14:00:00Z, milliseconds since 1970, or -2h"
        ) from None
    told = told if told.tzinfo else told.replace(tzinfo=UTC)
    since = told - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def window_us(start: str | None, end: str | None) -> tuple[int | None, int | None]:
    """Both ends of a window.

    Raises:
        typer.BadParameter: one is no time, or they are in the wrong order.
    """
    start_us, end_us = moment_us(start, "--from"), moment_us(end, "--to")
    if start_us is not None and end_us is not None and end_us <= start_us:
        raise typer.BadParameter("--to must be after --from")
    return start_us, end_us


def step_us(text: str | None) -> int | None:
    """A length in microseconds: `hour`, `5m`; None stays None.

    Raises:
        typer.BadParameter: it is no length.
    """
    if text is None:
        return None
    if text in _NAMED_STEPS_US:
        return _NAMED_STEPS_US[text]
    length = _LENGTH.fullmatch(text)
    if length is None or not int(length[1]):
        raise typer.BadParameter(f"--step: {text!r} is no length; write hour, minute, day, or for example 5m")
    return int(length[1]) * _UNITS_US[length[2]]


def grouping_of(text: str) -> Grouping:
    """What `--group-by` names.

    Raises:
        typer.BadParameter: no such grouping.
    """
    from strandline_analytics.scope import Grouping

    known = {("partition", "topic"): Grouping.PARTITION, ("topic",): Grouping.TOPIC, ("cluster",): Grouping.CLUSTER}
    keys = tuple(sorted({key.strip() for key in text.split(",") if key.strip()} - {"cluster"})) or ("cluster",)
    if keys not in known:
        raise typer.BadParameter(f"--group-by: {text!r} is none of: topic,partition  topic  cluster")
    return known[keys]


def time_text(us: int) -> str:
    """A moment as RFC 3339 in UTC, with as many digits as it needs."""
    moment = datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    below = us % 1_000_000
    return f"{moment}.{below:06d}".rstrip("0") + "Z" if below else f"{moment}Z"


def existing(inputs: Iterable[str]) -> list[str]:
    """The inputs, if those of this machine are there.

    Raises:
        typer.BadParameter: one is no directory.
    """
    for one in inputs:
        if "://" not in one and not Path(one).is_dir():
            raise typer.BadParameter(f"--input: {one} is no directory; give what services have as export_dir, or a URI")
    return list(inputs)
