"""How figures are written for people, on every screen and page: counts, sizes, durations, ages.

Sizes are in powers of 1,024 with their IEC names, because every size that can be set is one; an unknown figure is a
dash, never a zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sized

UNKNOWN = "–"
_NAMED = 6
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count_of(things: Sized | int, noun: str) -> str:
    """`1 partition`, `1,204 partitions`."""
    count = things if isinstance(things, int) else len(things)
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number_text(value: int | None) -> str:
    """`1,204`."""
    return UNKNOWN if value is None else f"{value:,}"


def bytes_text(size_bytes: float | None) -> str:
    """`512 B`, `1.4 MiB`, `250 GiB`."""
    if size_bytes is None:
        return UNKNOWN
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit + 1 < len(_SIZES):
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_SIZES[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_SIZES[unit]}"


def read_size(text: str) -> int:
    """`20MB`, `1.5 GiB`, `512B`: bytes, in powers of 1,000 or, with an i, of 1,024.

    Raises:
        ValueError: it is not a size; says how one is written.
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d+)?) ?([kKMGT]?)(i?)B", text)
    if found is None:
        raise ValueError(f"{text!r} is not a size; write a number with its unit (B, KB, MB, GB, KiB, MiB, GiB)")
    power = " KMGT".index(found[2].upper() or " ")
    return round(float(found[1]) * (1_024.0 if found[3] else 1_000.0) ** power)


def duration_text(duration_ms: float | None) -> str:
    """`850 µs`, `12.4 ms`, `3.25 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`: two units at most."""
    if duration_ms is None:
        return UNKNOWN
    size_ms = abs(duration_ms)
    if size_ms < 1:
        return f"{duration_ms * 1_000:.0f} µs"
    if size_ms < 1_000:
        return f"{_three_digits(duration_ms)} ms"
    if size_ms < 120_000:
        return f"{_three_digits(duration_ms / 1_000)} s"
    minutes, seconds = divmod(round(duration_ms / 1_000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours_of_day = divmod(hours, 24)
    if hours >= 48:
        return f"{days} d {hours_of_day} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def age_text(age_ms: int | None) -> str:
    """How long ago, coarsely: `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`."""
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


def listed(words: Iterable[str], most: int = _NAMED) -> str:
    """`1, 2, 3 and 4 more`."""
    every = list(words)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest:,} more" if rest > 0 else "")
