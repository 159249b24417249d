"""The form of a service's log lines: text on a terminal, JSON in files and pipes.

Invariant: in JSON each event is exactly one line; its fields have the same names in both forms. No line shows values of
a program's variables: tracebacks are plain.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any, TextIO

import structlog

from strandline.runtime.settings import shared


class LogFormat(StrEnum):
    """What `log_format` may be."""

    AUTO = "auto"
    """text on a terminal, json otherwise"""
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """What `log_level` may be."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_HEAD = ("timestamp", "level", "event")

LogFormatSetting = Annotated[
    LogFormat,
    shared(
        "form of log lines: auto, text or json; auto: json in files",
        "`json` for JSON even on a terminal; `text` to read a file yourself.",
    ),
]
LogLevelSetting = Annotated[
    LogLevel,
    shared(
        "lowest level that is logged: debug, info, warning or error",
        "`warning` to keep only lines that may need attention.",
    ),
]


def _head_first(_logger: object, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Put time, level and message first, where people look first."""
    return {**{name: line.pop(name) for name in _HEAD if name in line}, **line}


def configure_log_lines(
    form: LogFormat = LogFormat.AUTO, level: LogLevel = LogLevel.INFO, stream: TextIO | None = None
) -> None:
    """Write all later lines to ``stream`` (default: stderr) in this form."""
    target = stream or sys.stderr
    is_terminal = target.isatty()
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form is LogFormat.TEXT or (form is LogFormat.AUTO and is_terminal):
        renderer = structlog.dev.ConsoleRenderer(
            colors=is_terminal,
            pad_event_to=0,
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,
        )
        last: list[Any] = [renderer]
    else:
        # A traceback becomes one field, so that the event stays one line.
        last = [structlog.processors.format_exc_info, _head_first, structlog.processors.JSONRenderer(default=str)]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.value.upper()]),
        logger_factory=lambda *_: _Lines(target),
        cache_logger_on_first_use=True,
    )
    shared_with_clients = logging.getLogger("strandline")
    shared_with_clients.handlers[:] = [_AsServiceLine()]
    shared_with_clients.setLevel(level.value.upper())


class _Lines(structlog.PrintLogger):
    """Drops a line that cannot be written: a full disk or a closed pipe behind the log must not stop a service."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    debug = info = warning = error = critical = exception = msg


class _AsServiceLine(logging.Handler):
    """Writes log records of code that services share with clients in the form of the service's own lines.

    A record's ``fields`` (``extra={"fields": {...}}``) become the fields of the line.
    """

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        log.log(record.levelno, record.getMessage(), **getattr(record, "fields", {}))
