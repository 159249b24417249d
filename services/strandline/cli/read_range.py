"""Where reading begins and where it ends, as `consume` is told by `--offset` and `--until`.

Invariant: the end is exclusive, as every offset here. A time is looked up at the leaders: the first record at or after
it begins a range, or is the first beyond one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import typer

from strandline.cli.moments import read_moment_us

OFFSET_FORMS = "beginning, end, N, -N for the last N of each partition, or @TIME"
UNTIL_FORMS = "end, N, or @TIME"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in ms since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Last:
    """So many offsets before the end, in each partition."""

    count: int


Start = Literal["beginning", "end"] | int | AtTime | Last
"""A number is an offset, in every partition."""

End = Literal["end"] | int | AtTime | None
"""A number is the first offset that is not read; None: reading never ends."""

_NAMED: dict[str, Literal["beginning", "end"]] = {"beginning": "beginning", "end": "end"}


def start_of(from_beginning: bool, offset: str | None, timestamp: str | None) -> Start:
    """Where reading begins; at the end if nothing is said.

    Raises:
        typer.BadParameter: more than one place is named, or one that is none.
    """
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --timestamp")
    if timestamp is not None:
        return AtTime(read_moment_us(timestamp, "--timestamp") // 1_000)
    if offset is None:
        return "beginning" if from_beginning else "end"
    if offset in _NAMED:
        return _NAMED[offset]
    if re.fullmatch(r"-\d+", offset):
        return Last(int(offset[1:]))
    return _place(offset, "--offset", OFFSET_FORMS)


def end_of(stop_at_end: bool, until: str | None) -> End:
    """Where reading ends, if it does.

    Raises:
        typer.BadParameter: both options are given, or the place is none.
    """
    if stop_at_end and until is not None:
        raise typer.BadParameter("give --stop-at-end or --until; the first is --until end")
    if stop_at_end or until == "end":
        return "end"
    return None if until is None else _place(until, "--until", UNTIL_FORMS)


def _place(text: str, option: str, forms: str) -> int | AtTime:
    if text.isascii() and text.isdigit() and int(text) < 1 << 63:
        return int(text)
    if text.startswith("@"):
        return AtTime(read_moment_us(text[1:], option) // 1_000)
    try:
        return AtTime(read_moment_us(text, option) // 1_000)
    except typer.BadParameter:
        raise typer.BadParameter(f"{option}: {text!r} is no place in a log; write {forms}") from None
