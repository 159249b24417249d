"""How lines of brokers' logs are taken apart: patterns of log4j, JSON layouts, dates and zones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, JSON_LAYOUT, Line, layout_of
from strandline_kafka.metadata.wire import Unreadable

AT_MS = 1_795_387_881_246
MESSAGE = "[Partition orders-0 broker=1] ISR updated to 1,2  and version updated to 1"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (DEFAULT_PATTERN, f"[2026-11-22 22:51:21,246] INFO {MESSAGE} (kafka.cluster.Partition)"),
        (
            "%d{ISO8601} %-5p [%t] %c - %m%n",
            f"2026-11-22T22:51:21,246 INFO  [main] kafka.cluster.Partition - {MESSAGE}",
        ),
        (
            "%d{yyyy-MM-dd HH:mm:ss.SSSXXX} [%X{node}] %level %logger: %msg%n%throwable",
            f"2026-11-23 00:51:21.246+02:00 [n1] INFO kafka.cluster.Partition: {MESSAGE}",
        ),
    ],
)
def test_a_pattern_gives_time_message_and_logger(pattern: str, text: str) -> None:
    """A line that the pattern wrote gives the same three parts, whatever their order; a zone is taken off."""
    assert layout_of(pattern).parts(text) == Line(AT_MS, MESSAGE, "kafka.cluster.Partition")


@pytest.mark.parametrize(
    ("date", "written"),
    [
        ("%d{DEFAULT_MICROS}", "2026-11-22 22:51:21,246789"),
        ("%d{ISO8601_BASIC}", "20261122T225121,246"),
        ("%d{COMPACT}", "20261122225121246"),
        ("%d{DATE}", "22 Nov 2026 22:51:21,246"),
        ("%date{dd/MMM/yyyy HH:mm:ss.SSS}", "22/nov/2026 22:51:21.246"),
        ("%d{yyyy/MM/dd HH:mm:ss.SSS}", "2026/11/22 22:51:21.246"),
        ("%d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}", "2026-11-22T22:51:21.246Z"),
        ("%d{yyyy-MM-dd HH:mm:ss,SSS Z}", "2026-11-23 00:51:21,246 +0200"),
        ("%d{ISO8601}{UTC}", "2026-11-22T22:51:21,246"),
        ("%d{yyyy-MM-dd HH:mm:ss,SSS}{Europe/Berlin}", "2026-11-22 23:51:21,246"),
        ("%d{ISO8601}{America/St_Johns}", "2026-11-22T19:21:21,246"),
    ],
)
def test_a_date_of_any_format_is_read(date: str, written: str) -> None:
    """Formats by name and by letters give one moment; a zone that the text or the pattern names is taken off."""
    line = layout_of(f"{date} [%t] %-5p %c{{1}} - %m%n").parts(f"{written} [main] INFO  Partition - {MESSAGE}")
    assert line == Line(AT_MS, MESSAGE, "Partition")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%d{yyyy-MM-dd HH:mm:ss} %m%n", f"2026-11-22 22:51:21 {MESSAGE}"),
        (JSON_LAYOUT, json.dumps({"@timestamp": "2026-11-22T22:51:21Z", "message": MESSAGE})),
    ],
)
def test_whole_seconds_are_known_to_be_coarse(pattern: str, text: str) -> None:
    """A time without a fraction may be up to a second later than it says."""
    assert layout_of(pattern).parts(text) == Line(AT_MS // 1_000 * 1_000, MESSAGE, "", 1_000)


def test_each_line_has_the_layout_that_fits_it() -> None:
    """Two patterns, as before and after an upgrade, read a file of both; a line of neither is none."""
    both = layout_of(DEFAULT_PATTERN, "%d %p %m (%c) [%t]%n")
    texts = [f"[2026-11-22 22:51:21,246] INFO {MESSAGE} (k)", f"2026-11-22 22:51:21,246 INFO {MESSAGE} (k) [main]"]
    assert [both.parts(text) for text in texts] == [Line(AT_MS, MESSAGE, "k")] * 2
    assert both.parts(f"INFO 2026-11-22 22:51:21,246 {MESSAGE}") is None


@pytest.mark.parametrize(
    "said",
    [
        {"timestamp": "2026-11-22T22:51:21.246Z", "message": MESSAGE, "logger": "k"},
        {"timeMillis": AT_MS, "message": MESSAGE, "loggerName": "k"},
        {"instant": {"epochSecond": 1_795_387_881, "nanoOfSecond": 246_000_000}, "message": MESSAGE, "loggerName": "k"},
        {"@timestamp": "2026-11-22T22:51:21.246Z", "message": MESSAGE, "log.logger": "k"},
    ],
)
def test_json_layouts_give_the_same_parts(said: dict[str, object]) -> None:
    """The layouts of log4j2 that write an object a line name time, message and logger each in their way."""
    assert layout_of(JSON_LAYOUT).parts(json.dumps(said)) == Line(AT_MS, MESSAGE, "k")


@pytest.mark.parametrize(
    "text", ["\tat kafka.server.KafkaServer.startup(KafkaServer.scala:1)", "", "[2026-13-45 22:51:21,246] INFO x (y)"]
)
def test_a_line_of_another_layout_is_no_line(text: str) -> None:
    """The rest of a stack trace, an empty line and a date that is none have no parts."""
    assert layout_of(DEFAULT_PATTERN).parts(text) is None


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("%p %m%n", "must have %d once"),
        ("%d %p%n", "must have %m once"),
        ("%d{HH:mm} %m%n", "has a date that is not read: the date 'HH:mm' has no year"),
        ("%d{ABSOLUTE} %m%n", "has a date that is not read"),
        ("%d{yyyy-MM-dd HH:mm:ss z} %m%n", "has 'z', which is not read"),
        ("%d{yyyy-MM-dd yyyy HH:mm:ss} %m%n", "names one part twice"),
        ("%d{ISO8601}{Moon/Base} %m%n", "the zone 'Moon/Base' is not known; name one as Europe/Berlin"),
        ("x" * 500, "has 500 characters"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str, said: str) -> None:
    """A pattern without a date or a message, or with a date without a day, is refused before a line is read."""
    with pytest.raises(Unreadable, match=said):
        layout_of(pattern)


@given(st.text(max_size=300), st.sampled_from([DEFAULT_PATTERN, JSON_LAYOUT]))
def test_any_text_is_a_line_or_none(text: str, pattern: str) -> None:
    """No text makes a layout fail."""
    found = layout_of(pattern).parts(text)
    assert found is None or isinstance(found.message, str)
