"""How a length of time is written on the command line: `250ms`, `10s`, `5m`, `1h30m`, `2d`, or by ISO 8601 `PT1H30M`.

Invariant: a length has a unit, so that no option leaves anybody guessing between seconds, minutes and milliseconds.
Settings of services are no options of commands: their names end with the unit (`session_timeout_ms`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

_UNITS_US = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|d|h|m|s)")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
"""ISO 8601 without years, months and weeks, as Kafka's `--by-duration` takes it."""

EXAMPLE = "write a number with its unit (d, h, m, s, ms, us), for example 10s, 5m or 1h30m, or PT1H30M"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time."""

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
        """As it is written: the largest units first, none of them 0."""
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
        raise ValueError(f"{text!r} is no duration; {EXAMPLE}")
    return Duration(round(sum(float(part[1]) * _UNITS_US[part[2]] for part in parts)))


def duration_option(*names: str, help: str, least: str = "0s", most: str = "", step: str = "") -> Any:
    """An option that takes a length of at least ``least``, at most ``most``, and a multiple of ``step``."""
    return typer.Option(*names, metavar="DURATION", parser=_reader(least, most, step), help=help)


def _reader(least: str, most: str, step: str) -> Callable[[str | Duration], Duration]:
    def read(given: str | Duration) -> Duration:
        # A default comes as it is.
        length = given if isinstance(given, Duration) else _read_or_refuse(given)
        if length < read_duration(least):
            raise typer.BadParameter(f"{given} is too short; give {least} or more")
        if most and length > read_duration(most):
            raise typer.BadParameter(f"{given} is too long; give {most} or less")
        if step and length.us % read_duration(step).us:
            raise typer.BadParameter(f"{given} is no multiple of {step}")
        return length

    return read


def _read_or_refuse(text: str) -> Duration:
    try:
        return read_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
