"""How a moment is written on the command line, and that it is UTC where nothing else is said.

Invariant: the same words are the same moment in every command and on every machine; every command says on stderr which
moment it understood.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import typer

from strandline.cli.durations import read_duration

FORMS = "RFC 3339 (UTC without a zone), ms since 1970, or -2h before now"
"""For the help of an option that takes a moment."""

_LIKE_SECONDS = range(10**9, 10**10)
"""As seconds these are of 2001 to 2286; as milliseconds of the first months of 1970, where only simulations are."""


def read_moment_us(text: str, option: str) -> int:
    """A moment in microseconds since 1970, and a line on stderr that repeats it.

    Raises:
        typer.BadParameter: it is no moment.
    """
    us = _read(text, option)
    typer.echo(f"strandline: {option} is {time_text(us)}", err=True)
    if text.isascii() and text.isdigit() and int(text) in _LIKE_SECONDS:
        meant = time_text(int(text) * 1_000_000)
        typer.echo(f"strandline: {text} was read as milliseconds; if it is seconds, write {meant}", err=True)
    return us


def time_text(us: int) -> str:
    """A moment as RFC 3339 in UTC, with as many digits as it needs; one beyond all dates as microseconds."""
    try:
        moment = datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{us} us"
    below = us % 1_000_000
    return f"{moment}.{below:06d}".rstrip("0") + "Z" if below else f"{moment}Z"


def _read(text: str, option: str) -> int:
    try:
        if text.startswith("-"):
            return time.time_ns() // 1_000 - read_duration(text[1:]).us
        if text.isascii() and text.isdigit():
            return _checked(int(text) * 1_000)
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{option}: {text!r} is no time; write 2026-11-21T14:00:00Z, milliseconds since 1970, or -2h"
        ) from None


def _checked(us: int) -> int:
    """The moment, if it has a date."""
    datetime.fromtimestamp(us // 1_000_000, UTC)
    return us
