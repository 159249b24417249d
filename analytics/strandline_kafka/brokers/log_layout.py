"""Parses the layout of a broker's log lines: patterns of log4j, Kafka's own by default, or one JSON object per line.

Anything that a container runtime or a log collector puts around a line is removed: a prefix that ends in a space,
or an object that has the line as a text. A line has no zone unless its pattern gives one: its time is the broker's
time of day, and stays so here. `broker_clocks.py` finds the zone.

Invariant: a line becomes its parts or None, and a pattern is refused before the first line is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from strandline_kafka.brokers.text_files import uncoloured
from strandline_kafka.metadata.wire import Unreadable

# ---- log_dates
# Parses the dates of a log4j pattern: a format becomes an expression, and its match a time.
#
# Invariant: a text becomes ms since 1970, as if it were UTC where it names no zone and the pattern gives none, or None.

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
"""The formats that log4j knows by name; those without a day are unsupported."""
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
"""The part of a date for each letter of a format."""
_NEEDED = ("year", "month", "day", "hour", "minute", "second")
_RUN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>.)")
_ZONE = r"(?:Z|[+-]\d\d(?::?\d\d)?)"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class DateForm:
    """One format of a date, and the zone in its pattern."""

    def __init__(self, options: str) -> None:
        """Understand the options of ``%d``, such as ``{yyyy-MM-dd HH:mm:ss}{UTC}``.

        Raises:
            Unreadable: the format has no day or an unsupported part, or the zone is invalid.
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
        """How far the real time may be from the written one: a date without fractions of a second is truncated."""

    def moment_ms(self, text: str) -> int | None:
        """A date as ms since 1970; None if it does not fit the format, or is no date."""
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
            # These differ between releases of log4j.
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


DEFAULT_PATTERN = "[%d] %p %m (%c)%n"
"""The pattern of Kafka's own log4j2.yaml and log4j.properties."""
JSON_LAYOUT = "json"
"""The name for one JSON object per line, with the field names of log4j2's JsonLayout and JsonTemplateLayout."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GROUP = re.compile(r"\{((?:[^{}]|\{[^{}]*\})*)\}")
_CONVERSION = re.compile(r"%(?:-?\d*(?:\.-?\d+)?)(?P<name>[A-Za-z]+|%)(?P<options>(?:\{(?:[^{}]|\{[^{}]*\})*\})*)")
_MOST_PATTERN = 400

_MESSAGE = "(?P<message>.*)"
_BEFORE = r".{1,400}?[ \t]"
"""Prefixes of container runtimes and collectors, with their own time."""
_TIMES = ("timestamp", "@timestamp", "timeMillis", "instant")
_MESSAGES = ("message", "msg")
_LOGGERS = ("loggerName", "log.logger", "logger", "logger_name")
_AROUND = ("log", "MESSAGE", "message", "line")
"""Fields in which docker, journald, stern and log collectors store a line."""


class LineParts(NamedTuple):
    """The parts of a line that identify its form; ``at_ms`` is the time of day as written, as if it were UTC."""

    at_ms: int
    message: str
    logger: str
    coarse_ms: int = 0
    """How far the real time may be from that, if it is in whole seconds."""


class Layout(Protocol):
    """Splits lines into their parts."""

    def parts(self, text: str) -> LineParts | None:
        """The parts of a line; None for one of another layout, such as the rest of a stack trace."""
        ...

    def head(self, text: str) -> LineParts | None:
        """The parts of the first line of a message of several lines; None for a line of another layout."""
        ...


def layout_of(*patterns: str) -> Layout:
    """The layout of lines that any of these patterns wrote; `JSON_LAYOUT` is one.

    Raises:
        Unreadable: a pattern has no date or no message, or a date in an unsupported form.
    """
    bare = [JsonLines() if pattern == JSON_LAYOUT else PatternLines(pattern) for pattern in patterns]
    held = [PatternLines(pattern, _BEFORE) for pattern in patterns if pattern != JSON_LAYOUT]
    return _AnyOf([*bare, *held])


def taken_out(text: str) -> str:
    """The line in a JSON object of a container runtime; the text itself if it is no such object."""
    if not text.startswith("{"):
        return text
    said = _object(text)
    held = next((said[name] for name in _AROUND if name in said), None)
    if isinstance(held, list):
        # This is how journald gives a line with colours.
        held = bytes(one & 0xFF for one in held if isinstance(one, int)).decode("utf-8", "replace")
    return uncoloured(held.rstrip("\r\n")) if isinstance(held, str) else text


class _AnyOf:
    """The first of several layouts that fits a line, or the line inside it."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self._layouts = layouts

    def parts(self, text: str) -> LineParts | None:
        """The parts of a line."""
        return next((line for one, held in self._tried(text) if (line := one.parts(held)) is not None), None)

    def head(self, text: str) -> LineParts | None:
        """The parts of the first line of a message."""
        return next((line for one, held in self._tried(text) if (line := one.head(held)) is not None), None)

    def _tried(self, text: str) -> Iterator[tuple[Layout, str]]:
        yield from ((layout, text) for layout in self._layouts)
        if (held := taken_out(text)) != text:
            yield from ((layout, held) for layout in self._layouts)


class PatternLines:
    """Lines that a pattern of log4j wrote, each perhaps with a prefix."""

    def __init__(self, pattern: str, before: str = "") -> None:
        if len(pattern) > _MOST_PATTERN:
            raise Unreadable(f"the pattern has {len(pattern)} characters, at most {_MOST_PATTERN} are read")
        dates: list[DateForm] = []
        expression = "".join(_parts_of(pattern, dates)).rstrip()
        for count, conversion in ((len(dates), "%d"), (expression.count(_MESSAGE), "%m")):
            if count != 1:
                raise Unreadable(f"the pattern {pattern!r} must have {conversion} once; Kafka's is {DEFAULT_PATTERN!r}")
        begin, message, _ = expression.partition(_MESSAGE)
        (self._date,) = dates
        self._form = re.compile(before + expression)
        self._head = re.compile(before + begin + message)

    def parts(self, text: str) -> LineParts | None:
        """The parts of a line; None if the pattern did not write it."""
        return self._parts(self._form.fullmatch(text))

    def head(self, text: str) -> LineParts | None:
        """The parts of a line that ends within its message."""
        return self._parts(self._head.fullmatch(text))

    def _parts(self, found: re.Match[str] | None) -> LineParts | None:
        at_ms = None if found is None else self._date.moment_ms(found["date"])
        if found is None or at_ms is None:
            return None
        logger = (found.groupdict().get("logger") or "").strip()
        return LineParts(at_ms, found["message"].strip(), logger, self._date.coarse_ms)


class JsonLines:
    """Lines that are JSON objects, or end in one."""

    def parts(self, text: str) -> LineParts | None:
        """The parts of a line; None if it is not an object with a time and a message."""
        said = _object(text[max(0, text.find("{")) :])
        at = _json_moment(said)
        message = _first_text(said, _MESSAGES)
        if at is None or message is None:
            return None
        return LineParts(at[0], message.strip(), _first_text(said, _LOGGERS) or "", at[1])

    def head(self, text: str) -> LineParts | None:
        """The same: an object holds its whole message."""
        return self.parts(text)


def _parts_of(pattern: str, dates: list[DateForm]) -> Iterator[str]:
    at = 0
    for found in _CONVERSION.finditer(pattern):
        yield _literal(pattern[at : found.start()])
        yield _conversion(found["name"], found["options"], pattern, dates)
        at = found.end()
    yield _literal(pattern[at:])


def _literal(text: str) -> str:
    # A conversion may be padded, so any number of spaces counts as one.
    return re.sub(r"(?:\\ )+", r" *", re.escape(text))


def _conversion(name: str, options: str, pattern: str, dates: list[DateForm]) -> str:
    match name:
        case "%":
            return "%"
        case "d" | "date":
            try:
                dates.append(DateForm(options))
            except Unreadable as error:
                raise Unreadable(f"the pattern {pattern!r} has a date that is not read: {error}") from error
            return f"(?P<date>{dates[-1].expression})"
        case "highlight" | "style":
            # Only colours, which were removed before.
            return "".join(_parts_of(_GROUP.findall(options)[0] if options else "", dates))
        case "p" | "level":
            return r" *[A-Z]+ *"
        case "m" | "msg" | "message":
            return _MESSAGE
        case "c" | "logger":
            return r"(?P<logger>[^\s()]*) *"
        case "n" | "throwable" | "ex" | "exception" | "xEx" | "xThrowable" | "rEx":
            return ""
        case _:
            # Threads, hosts, contexts: any text.
            return r"[^\n]{0,200}?"


def _object(text: str) -> dict[str, object]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _json_moment(said: dict[str, object]) -> tuple[int, int] | None:
    """The time of an object, ms since 1970, and how far it may be off."""
    for name in _TIMES:
        match said.get(name):
            case bool():
                continue
            case int() as at_ms:
                return at_ms, 0
            case str() as text:
                try:
                    moment = datetime.fromisoformat(text.replace(",", "."))
                except ValueError:
                    return None
                moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
                return (moment - _EPOCH) // timedelta(milliseconds=1), 0 if "." in text or "," in text else SECOND_MS
            case {"epochSecond": int(seconds), "nanoOfSecond": int(nanos)}:
                return seconds * 1_000 + nanos // 1_000_000, 0
            case _:
                continue
    return None


def _first_text(said: dict[str, object], names: tuple[str, ...]) -> str | None:
    return next((text for name in names if isinstance(text := said.get(name), str)), None)
