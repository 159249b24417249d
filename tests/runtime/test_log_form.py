"""The log of a process: the form of a line, and refusals that are counted."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from strandline.core.errors import ErrorCode, Refusal
from strandline.runtime import refusals
from strandline.runtime.log_form import LogFormat, LogLevel, configure_log_lines
from strandline.runtime.refusals import TELL_EVERY_MS, Refusals


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Full(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


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


def test_a_line_that_cannot_be_written_is_dropped() -> None:
    """A full disk behind the log stops no service."""
    configure_log_lines(LogFormat.JSON, stream=(full := _Full()))
    structlog.get_logger("test").info("leads")

    assert full.getvalue() == ""


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


REFUSAL = Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "one of two in sync")


class _Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_a_flood_is_one_line_and_then_a_count() -> None:
    """A thousand rejections within the window make one line at once and one with the rest when it is over."""
    lines: list[dict[str, Any]] = []
    clock = _Clock()
    refusals = Refusals(clock, lambda sentence, **fields: lines.append({"event": sentence, **fields}))

    for _ in range(1_000):
        refusals.note("Produce", REFUSAL, topic="tides", partition=1)
    refusals.tell_rest()
    reported_at_once = list(lines)
    clock.now_ms += TELL_EVERY_MS
    refusals.tell_rest()
    refusals.tell_rest()

    assert reported_at_once == [
        {
            "event": "refused",
            "call": "Produce",
            "error": "NOT_ENOUGH_REPLICAS",
            "reason": "one of two in sync",
            "times": 1,
            "topic": "tides",
            "partition": 1,
        }
    ]
    assert [line["times"] for line in lines] == [1, 999]
    assert refusals.by_error == {"NOT_ENOUGH_REPLICAS": 1_000}


def test_kinds_do_not_hide_each_other() -> None:
    """The same error of another call, and another error of the same call, are logged too; no message is kept whole."""
    lines: list[str] = []
    refusals = Refusals(_Clock(), lambda _, **fields: lines.append(f"{fields['call']} {fields['error']}"))

    refusals.note("Produce", REFUSAL)
    refusals.note("Fetch", REFUSAL)
    for _ in range(2):
        refusals.note("Produce", Refusal(ErrorCode.INVALID_REQUEST, "no topic" * 1_000_000))

    assert lines == ["Produce NOT_ENOUGH_REPLICAS", "Fetch NOT_ENOUGH_REPLICAS", "Produce INVALID_REQUEST"]
    assert max(len(kind.last.get("reason", "")) for kind in refusals._kinds.values()) == 1_000
