"""How a broker lays out one line of its log: a pattern of log4j, Kafka's own by default, or one JSON object a line.

A line holds no zone: its time is the broker's time of day, and stays so here. `broker_clocks.py` finds the zone.

Invariant: a line becomes its parts or None, and a pattern is refused before the first line is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Protocol

from strandline.kafka.history.wire import Unreadable

DEFAULT_PATTERN = "[%d] %p %m (%c)%n"
"""As Kafka's own log4j2.yaml and log4j.properties have it."""
JSON_LAYOUT = "json"
"""The word for one JSON object a line, in the names of log4j2's JsonLayout and JsonTemplateLayout."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONVERSION = re.compile(r"%(?:-?\d*(?:\.-?\d+)?)(?P<name>[A-Za-z]+|%)(?P<options>(?:\{[^{}]*\})*)")
_MOST_PATTERN = 400

_DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[,.]\d{3,9}(?:Z|[+-]\d\d:?\d\d)?"
_MESSAGE = "(?P<message>.*)"
_DATES_KNOWN = re.compile(
    r"\{(?:DEFAULT|ISO8601|ABSOLUTE_ISO|yyyy-MM-dd'?[T ]'?HH:mm:ss[,.]S{3,9}'?(?:X{1,3}|Z|'Z)?'?)\}(?:\{[^{}]*\})?"
)
_TIMES = ("timestamp", "@timestamp", "timeMillis", "instant")
_MESSAGES = ("message", "msg")
_LOGGERS = ("loggerName", "log.logger", "logger", "logger_name")


class Line(NamedTuple):
    """The parts of a line that its form is known by; ``at_ms`` is the time of day as written, as if it were UTC."""

    at_ms: int
    message: str
    logger: str


class Layout(Protocol):
    """Takes lines apart."""

    def parts(self, text: str) -> Line | None:
        """The parts of a line; None for one of another layout, such as the rest of a stack trace."""
        ...

    def head(self, text: str) -> Line | None:
        """The parts of the first line of a message of several; None for one of another layout."""
        ...


def layout_of(pattern: str) -> Layout:
    """The layout that a pattern describes, or `JSON_LAYOUT`.

    Raises:
        Unreadable: the pattern has no date or no message, or a date in a form that is not read.
    """
    return JsonLines() if pattern == JSON_LAYOUT else PatternLines(pattern)


class PatternLines:
    """Lines that a pattern of log4j wrote."""

    def __init__(self, pattern: str) -> None:
        expression = _expression(pattern)
        self._form = re.compile(expression)
        before, message, _ = expression.partition(_MESSAGE)
        self._head = re.compile(before + message)

    def parts(self, text: str) -> Line | None:
        """The parts of a line; None for one that the pattern did not write."""
        return self._parts(self._form.fullmatch(text))

    def head(self, text: str) -> Line | None:
        """The parts of a line that ends within its message."""
        return self._parts(self._head.fullmatch(text))

    def _parts(self, found: re.Match[str] | None) -> Line | None:
        if found is None:
            return None
        groups = found.groupdict()
        at_ms = _moment_ms(groups["date"])
        return None if at_ms is None else Line(at_ms, groups["message"].strip(), (groups.get("logger") or "").strip())


class JsonLines:
    """Lines that are JSON objects."""

    def parts(self, text: str) -> Line | None:
        """The parts of a line; None for one that is no object with a time and a message."""
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict):
            return None
        at_ms = _json_moment_ms(said)
        message = _first_text(said, _MESSAGES)
        if at_ms is None or message is None:
            return None
        return Line(at_ms, message.strip(), _first_text(said, _LOGGERS) or "")

    def head(self, text: str) -> Line | None:
        """The same: an object holds its whole message."""
        return self.parts(text)


def _expression(pattern: str) -> str:
    if len(pattern) > _MOST_PATTERN:
        raise Unreadable(f"the pattern has {len(pattern)} characters, at most {_MOST_PATTERN} are read")
    parts = list(_parts_of(pattern))
    expression = "".join(parts)
    for needed, conversion in (("date", "%d"), ("message", "%m")):
        if expression.count(f"(?P<{needed}>") != 1:
            raise Unreadable(f"the pattern {pattern!r} must have {conversion} once; Kafka's own is {DEFAULT_PATTERN!r}")
    return expression.rstrip()


def _parts_of(pattern: str) -> Iterator[str]:
    at = 0
    for found in _CONVERSION.finditer(pattern):
        yield _literal(pattern[at : found.start()])
        yield _conversion(found["name"], found["options"], pattern)
        at = found.end()
    yield _literal(pattern[at:])


def _literal(text: str) -> str:
    # A conversion may be padded, so any number of spaces is as good as one.
    return re.sub(r"(?:\\ )+", r" *", re.escape(text))


def _conversion(name: str, options: str, pattern: str) -> str:
    match name:
        case "%":
            return "%"
        case "d" | "date":
            if options and not _DATES_KNOWN.fullmatch(options):
                raise Unreadable(f"the pattern {pattern!r} has a date that is not read; use yyyy-MM-dd HH:mm:ss,SSS")
            return f"(?P<date>{_DATE})"
        case "p" | "level":
            return r" *[A-Z]+ *"
        case "m" | "msg" | "message":
            return _MESSAGE
        case "c" | "logger":
            return r"(?P<logger>[^\s()]*) *"
        case "n" | "throwable" | "ex" | "exception" | "xEx" | "xThrowable" | "rEx":
            return ""
        case _:
            # Threads, hosts, contexts: whatever stands there.
            return r"[^\n]{0,200}?"


def _json_moment_ms(said: dict[str, object]) -> int | None:
    for name in _TIMES:
        match said.get(name):
            case bool():
                continue
            case int() as at_ms:
                return at_ms
            case str() as text:
                return _moment_ms(text)
            case {"epochSecond": int(seconds), "nanoOfSecond": int(nanos)}:
                return seconds * 1_000 + nanos // 1_000_000
            case _:
                continue
    return None


def _first_text(said: dict[str, object], names: tuple[str, ...]) -> str | None:
    return next((text for name in names if isinstance(text := said.get(name), str)), None)


@lru_cache(maxsize=64)
def _minute_ms(text: str) -> int | None:
    """Of a date to the minute; lines come many to a minute."""
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _moment_ms(text: str) -> int | None:
    """``2026-11-22 22:51:21,246``, with a zone or without, as ms since 1970; None for no date."""
    minute_ms = _minute_ms(text[:16])
    if minute_ms is None or not (text[17:19].isdecimal() and text[20:23].isdecimal()):
        return None
    at_ms = minute_ms + int(text[17:19]) * 1_000 + int(text[20:23])
    zone = re.search(r"(?:Z|([+-])(\d\d):?(\d\d))$", text[20:])
    if zone is None or zone[1] is None:
        return at_ms
    shift_ms = (int(zone[2]) * 60 + int(zone[3])) * 60_000
    return at_ms - shift_ms if zone[1] == "+" else at_ms + shift_ms
