"""A line of the log: JSON where a program reads it, words on a terminal, and never more than one line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from strandline.core.errors import ErrorCode, Refusal
from strandline.runtime import refusals
from strandline.runtime.log_form import LogFormat, LogLevel, configure_log_lines


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Restores the logging configuration for the rest of the run."""
    before = structlog.get_config()
    shared = logging.getLogger("strandline")
    handlers, level = shared.handlers[:], shared.level
    yield
    structlog.configure(**before)
    shared.handlers[:] = handlers
    shared.setLevel(level)


def _said(stream: io.StringIO, form: LogFormat = LogFormat.AUTO, level: LogLevel = LogLevel.INFO) -> str:
    configure_log_lines(form, level, stream)
    log = structlog.get_logger("test")
    hidden = "sec" + "ret"
    try:
        raise ValueError("broken" if hidden else "")
    except ValueError:
        log.info("leads", topic="tides", partition=3, isr=[1, 2])
        log.debug("too small to tell")
        log.error("failed", exc_info=True)
    return stream.getvalue()


def test_a_file_gets_json() -> None:
    """One object a line, head first, a traceback inside its line."""
    lines = _said(io.StringIO()).splitlines()
    first, second = map(json.loads, lines)

    assert list(first) == ["timestamp", "level", "event", "topic", "partition", "isr"]
    assert (first["event"], first["level"], first["isr"]) == ("leads", "info", [1, 2])
    assert "ValueError: broken" in second["exception"]


@pytest.mark.parametrize(("level", "count"), [(LogLevel.INFO, 1), (LogLevel.ERROR, 0)])
def test_refusals_have_the_form_and_the_level_of_every_line(
    monkeypatch: pytest.MonkeyPatch, level: LogLevel, count: int
) -> None:
    """This also holds for loggers whose module was imported before the log was configured."""
    stream = io.StringIO()
    # As in a new process: a logger keeps the format in which it was used first.
    monkeypatch.setattr(refusals, "_log", structlog.get_logger("strandline.refusals"))
    configure_log_lines(LogFormat.JSON, level, stream)
    refusals.Refusals().note("Produce", Refusal(ErrorCode.INVALID_REQUEST, "no topic"))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]

    assert [(line["event"], line["level"], line["error"]) for line in lines] == [
        ("refused", "info", "INVALID_REQUEST")
    ] * count


def test_a_terminal_gets_words() -> None:
    """Sentence and fields, no braces; a traceback without the values of variables."""
    lines = _said(_Terminal()).splitlines()
    line = lines[0]

    assert "secret" not in "".join(lines)
    assert "leads" in line
    assert "tides" in line
    assert "{" not in line


@pytest.mark.parametrize(("form", "is_json"), [(LogFormat.TEXT, False), (LogFormat.JSON, True)])
def test_the_form_can_be_chosen(form: LogFormat, is_json: bool) -> None:
    """This holds for any stream."""
    stream = io.StringIO() if form is LogFormat.TEXT else _Terminal()

    assert _said(stream, form).startswith("{") is is_json


def test_the_level_can_be_chosen() -> None:
    """Lines below the level are not written."""
    lines = _said(io.StringIO(), level=LogLevel.ERROR).splitlines()

    assert [json.loads(line)["event"] for line in lines] == ["failed"]


def test_code_shared_with_clients_writes_lines_of_the_service() -> None:
    """A record of the standard library's logging keeps its level and gets its fields."""
    stream = io.StringIO()
    configure_log_lines(LogFormat.JSON, stream=stream)

    logging.getLogger("strandline.tls").error("the new certificate is not used", extra={"fields": {"reason": "old"}})

    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"], line["reason"]) == ("error", "the new certificate is not used", "old")
