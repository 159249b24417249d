"""Decides how figures are written for people: counts, ages, bytes, lists that end with "and N more".

Invariant: an unknown figure is a dash, never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized

UNKNOWN = "–"
_NAMED = 6
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count_of(things: Sized | int, noun: str) -> str:
    """`1 partition`, `1,204 partitions`."""
    count = things if isinstance(things, int) else len(things)
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number_text(value: int | None) -> str:
    """`1,204`."""
    return UNKNOWN if value is None else f"{value:,}"


def age_text(age_ms: int | None) -> str:
    """`0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`."""
    if age_ms is None:
        return UNKNOWN
    seconds = age_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def bytes_text(size: int | None) -> str:
    """`512 B`, `1.4 MiB`."""
    if size is None:
        return UNKNOWN
    value, unit = float(size), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def listed(words: Iterable[str], most: int = _NAMED) -> str:
    """`1, 2, 3 and 4 more`."""
    every = list(words)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest:,} more" if rest > 0 else "")
