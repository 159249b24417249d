"""Durations on the command line: `250ms`, `10s`, `5m`, `1h30m`, `2d`, or in ISO 8601 `PT1H30M`.

Invariant: a duration has a unit, so that no option leaves a user guessing between seconds, minutes and milliseconds.
Settings of services differ: their names end with the unit (`session_timeout_ms`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer

_UNITS_US = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_PART = re.compile(r"(\d{1,15}(?:\.\d+)?)(us|ms|d|h|m|s)")
_ISO = re.compile(r"P(?:(\d{1,15})D)?(?:T(?:(\d{1,15})H)?(?:(\d{1,15})M)?(?:(\d{1,15}(?:\.\d+)?)S)?)?")
"""ISO 8601 without years, months and weeks, as Kafka's `--by-duration` takes it."""

EXAMPLE = "write a number with its unit (d, h, m, s, ms, us), for example 10s, 5m or 1h30m, or PT1H30M"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A duration."""

    us: int

    @property
    def ms(self) -> float:
        """In milliseconds."""
        return self.us / 1_000

    @property
    def s(self) -> float:
        """In seconds."""
        return self.us / 1_000_000

    @property
    def days(self) -> int:
        """Whole days."""
        return self.us // _UNITS_US["d"]

    def __str__(self) -> str:
        """As text: the largest units first, none of them 0."""
        parts, rest = [], self.us
        for unit, size in _UNITS_US.items():
            count, rest = divmod(rest, size)
            if count:
                parts.append(f"{count}{unit}")
        return "".join(parts) or "0s"


def read_duration(text: str) -> Duration:
    """`10s`, `1h30m`, `1.5s`, `PT1.5S`: units from large to small, each at most once.

    Raises:
        ValueError: it is no length; says how one is written.
    """
    if (iso := _ISO.fullmatch(text)) and text[-1] not in "PT":
        sizes = [_UNITS_US[unit] for unit in "dhms"]
        return Duration(round(sum(float(count or 0) * size for count, size in zip(iso.groups(), sizes, strict=True))))
    parts = list(_PART.finditer(text))
    units = [part[2] for part in parts]
    in_order = [unit for unit in _UNITS_US if unit in units]
    if not parts or "".join(part[0] for part in parts) != text or units != in_order:
        raise ValueError(f"{text!r} is not a duration; {EXAMPLE}")
    return Duration(round(sum(float(part[1]) * _UNITS_US[part[2]] for part in parts)))


def duration_option(*names: str, help: str, least: str = "0s", most: str = "", step: str = "") -> Any:
    """An option that takes a length of at least ``least``, at most ``most``, and a multiple of ``step``."""
    return typer.Option(*names, metavar="DURATION", parser=_reader(least, most, step), help=help)


def _reader(least: str, most: str, step: str) -> Callable[[str | Duration], Duration]:
    def read(given: str | Duration) -> Duration:
        # A default is not a string.
        length = given if isinstance(given, Duration) else _read_or_refuse(given)
        if length < read_duration(least):
            raise typer.BadParameter(f"{given} is too short; give {least} or more")
        if most and length > read_duration(most):
            raise typer.BadParameter(f"{given} is too long; give {most} or less")
        if step and length.us % read_duration(step).us:
            raise typer.BadParameter(f"{given} is not a multiple of {step}")
        return length

    return read


def _read_or_refuse(text: str) -> Duration:
    try:
        return read_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


# ---- moments
# Points in time on the command line, in UTC unless they have another offset.
#
# Invariant: the same text means the same moment in every command and on every machine; every command prints on stderr
# which moment it read.

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
            f"{option}: {text!r} is not a time; write 2026-11-21T14:00:00Z, milliseconds since 1970, or -2h"
        ) from None


def _checked(us: int) -> int:
    """The moment, if it has a date."""
    datetime.fromtimestamp(us // 1_000_000, UTC)
    return us
