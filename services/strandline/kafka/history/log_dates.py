"""The dates of a log4j pattern: letters of a format as an expression, and what it finds as a time.

Invariant: a text becomes ms since 1970, as if it were UTC where it names no zone and the pattern gives none, or None.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from strandline.kafka.history.wire import Unreadable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
SECOND_MS = 1_000

_NAMED = {
    "": "yyyy-MM-dd HH:mm:ss,SSS",
    "DEFAULT": "yyyy-MM-dd HH:mm:ss,SSS",
    "DEFAULT_MICROS": "yyyy-MM-dd HH:mm:ss,SSSSSS",
    "DEFAULT_NANOS": "yyyy-MM-dd HH:mm:ss,SSSSSSSSS",
    "DEFAULT_PERIOD": "yyyy-MM-dd HH:mm:ss.SSS",
    "ISO8601": "yyyy-MM-dd'T'HH:mm:ss,SSS",
    "ISO8601_BASIC": "yyyyMMdd'T'HHmmss,SSS",
    "ISO8601_BASIC_PERIOD": "yyyyMMdd'T'HHmmss.SSS",
    "ISO8601_PERIOD": "yyyy-MM-dd'T'HH:mm:ss.SSS",
    "ISO8601_PERIOD_MICROS": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ISO8601_OFFSET_DATE_TIME_HH": "yyyy-MM-dd'T'HH:mm:ss,SSSX",
    "ISO8601_OFFSET_DATE_TIME_HHMM": "yyyy-MM-dd'T'HH:mm:ss,SSSXX",
    "ISO8601_OFFSET_DATE_TIME_HHCMM": "yyyy-MM-dd'T'HH:mm:ss,SSSXXX",
    "COMPACT": "yyyyMMddHHmmssSSS",
    "DATE": "dd MMM yyyy HH:mm:ss,SSS",
}
"""The formats that log4j knows by name; those without a day are not read."""
_FIELDS = {
    "y": "year",
    "u": "year",
    "M": "month",
    "L": "month",
    "d": "day",
    "H": "hour",
    "m": "minute",
    "s": "second",
    "S": "fraction",
    "n": "fraction",
    **dict.fromkeys("XxZ", "zone"),
}
"""The part of a date that a letter of a format is."""
_NEEDED = ("year", "month", "day", "hour", "minute", "second")
_RUN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>.)")
_ZONE = r"(?:Z|[+-]\d\d(?::?\d\d)?)"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class DateForm:
    """One format of a date, and the zone that its pattern gives it."""

    def __init__(self, options: str) -> None:
        """Understand the options of ``%d``, such as ``{yyyy-MM-dd HH:mm:ss}{UTC}``.

        Raises:
            Unreadable: the format has no day, or something that is not read, or the zone is none.
        """
        name, *zones = [each.rstrip("}") for each in options.split("{")[1:]] or [""]
        self.expression = "".join(_expression(_NAMED.get(name, name)))
        if "(?P<zone>" not in self.expression:
            self.expression += rf"(?P<zone>{_ZONE})?"
        if missing := [one for one in _NEEDED if f"(?P<{one}>" not in self.expression]:
            raise Unreadable(f"the date {name!r} has no {missing[0]}; use yyyy-MM-dd HH:mm:ss,SSS")
        try:
            self._form = re.compile(self.expression)
        except re.error as error:
            raise Unreadable(f"the date {name!r} names one part twice; use yyyy-MM-dd HH:mm:ss,SSS") from error
        self._zone = _zone_of(zones[0]) if zones else UTC
        self.coarse_ms = 0 if "(?P<fraction>" in self.expression else SECOND_MS
        """How far a time may be from what is written: a date without fractions of a second is cut off."""

    def moment_ms(self, text: str) -> int | None:
        """A date as ms since 1970; None for one that is not of the format, or no date."""
        found = self._form.fullmatch(text)
        if found is None:
            return None
        parts = found.groupdict()
        try:
            name = parts["month"]
            parts["month"] = str(_MONTHS.index(name[:3].lower()) + 1) if name.isalpha() else name
            zone = self._zone if parts["zone"] is None else _offset_of(parts["zone"])
            year, month, day, hour, minute, second = (int(parts[one]) for one in _NEEDED)
            moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
            return (moment - _EPOCH) // _MS + int((parts.get("fraction") or "0")[:3].ljust(3, "0"))
        except (ValueError, OverflowError):
            return None


def _expression(form: str) -> list[str]:
    found: list[str] = []
    for run in _RUN.finditer(form):
        letters, count = run["letters"] or "", len(run["letters"] or "")
        field = _FIELDS.get(letters[:1])
        if field == "zone":
            found.append(f"(?P<zone>{_ZONE})")
        elif field == "fraction":
            found.append(rf"(?P<fraction>\d{{{min(count, 9)},9}})")
        elif field == "month" and count > 2:
            found.append(r"(?P<month>[A-Za-z]{3,9})\.?")
        elif field is not None:
            found.append(rf"(?P<{field}>\d{{{count if count > 1 else '1,2'}}})")
        elif letters:
            raise Unreadable(f"the date {form!r} has {letters!r}, which is not read; use yyyy-MM-dd HH:mm:ss,SSS")
        else:
            text = run["other"] if run["quoted"] is None else run["quoted"] or "'"
            # Releases of log4j differ in these.
            found.append({" ": "[T ]", "T": "[T ]", ",": "[,.]", ".": "[,.]"}.get(text, re.escape(text)))
    return found


def _zone_of(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Unreadable(f"the zone {name!r} is not known; name one as Europe/Berlin") from error


def _offset_of(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    apart = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(apart if text[0] == "+" else -apart)
