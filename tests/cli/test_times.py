"""Times and lengths of time on the command line: one spelling, in every option and command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import Enum

import pytest
import typer
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.durations import Duration, read_duration, read_moment_us, time_text


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("250ms", 250_000),
        ("10s", 10_000_000),
        ("1.5s", 1_500_000),
        ("5m", 300_000_000),
        ("1h30m", 5_400_000_000),
        ("2d", 172_800_000_000),
        ("7us", 7),
        ("0s", 0),
        ("PT1H", 3_600_000_000),
        ("P1DT1M0.5S", 86_460_500_000),
        ("P2D", 172_800_000_000),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, us: int) -> None:
    """Units may be combined from large to small; the form of ISO 8601 is the same length."""
    assert read_duration(text) == Duration(us)


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "5 s", "-5s", "5m1h", "1h1h", "1m30", "5min", "1:30", "P", "PT", "P1DT", "P1Y", "PT1", "pt1h"],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    """A number without a unit, above all: it could mean seconds or minutes."""
    with pytest.raises(ValueError, match=r"is not a duration; .*1h30m"):
        read_duration(text)


@given(st.integers(0, 10**15))
def test_a_duration_is_shown_as_it_may_be_written(us: int) -> None:
    """A default that help shows can be typed."""
    assert read_duration(str(Duration(us))) == Duration(us)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cluster", "status", "--bootstrap", "a:1", "--interval", "2"], "'2' is not a duration"),
        (["cluster", "status", "--bootstrap", "a:1", "--interval", "10ms"], "10ms is too short; give 200ms or more"),
        (["certs", "renew", ".", "--valid-for", "36h"], "36h is not a multiple of 1d"),
        (["certs", "renew", ".", "--valid-for", "9" * 400 + "d"], "is not a duration"),
        (["certs", "renew", ".", "--valid-for", "9999d"], "9999d is too long; give 3650d or less"),
    ],
)
def test_a_wrong_duration_names_its_option(words: list[str], said: str) -> None:
    """An impossible value ends with exit code 2, the option's name and the bound."""
    ran = CliRunner().invoke(app, words)

    assert ran.exit_code == 2
    assert f"Invalid value for '{words[-2]}'" in ran.stderr
    assert said in ran.stderr


def options() -> list[tuple[str, typer.core.TyperOption]]:
    """Every option of every command, with the command's words."""
    found: list[tuple[str, typer.core.TyperOption]] = []
    waiting = [("strandline", typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop()
        waiting += [(f"{words} {name}", inner) for name, inner in getattr(command, "commands", {}).items()]
        found += [(words, each) for each in command.params if isinstance(each, typer.core.TyperOption)]
    return found


def test_no_option_has_a_unit_of_its_own() -> None:
    """No option with a value is named or described by a unit of time: all of them accept the same spelling."""
    units = ("-s", "-ms", "-us", "-seconds", "-minutes", "-hours", "-days")
    odd = {
        f"{words} {name}"
        for words, option in options()
        if not option.is_flag
        for name in option.opts
        if name.endswith(units) or name.removeprefix("--") in ("seconds", "minutes", "hours", "days")
        or option.metavar in ("SECONDS", "MINUTES", "HOURS", "DAYS", "MS", "LENGTH")
    }  # fmt: skip

    assert len(options()) > 150
    assert odd == set()


def test_o_is_the_form_of_the_output_everywhere() -> None:
    """-o and --output choose a format in every command that has them; a destination is --out."""
    named = [(words, option) for words, option in options() if {"-o", "--output"} & set(option.opts)]
    wrong = {
        f"{words} {option.opts}"
        for words, option in named
        if set(option.opts) != {"-o", "--output"} or "json" not in forms_of(option)
    }

    assert len(named) > 10
    assert wrong == set()


def forms_of(option: typer.core.TyperOption) -> set[str]:
    """The words that an option may have as its value; none if it may have any."""
    annotation = option.type_descriptor.annotation
    is_closed = isinstance(annotation, type) and issubclass(annotation, Enum)
    return {member.value for member in annotation} if is_closed else set()


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """A machine's own time zone."""
    zone = str(request.param)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        yield zone
    time.tzset()


@pytest.mark.parametrize(
    "text", ["2026-11-21T14:00:00Z", "2026-11-21T15:00:00+01:00", "2026-11-21T14:00", "1795269600000"]
)
def test_a_moment_without_a_zone_is_utc(text: str, zone: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In any time zone of the machine the time is the same, and is repeated on stderr."""
    assert read_moment_us(text, "--timestamp") == 1_795_269_600_000_000
    assert capsys.readouterr() == ("", "strandline: --timestamp is 2026-11-21T14:00:00Z\n"), zone


@pytest.mark.parametrize(("text", "is_reported"), [("1795269600", True), ("7000", False), ("1795269600000", False)])
def test_a_number_that_looks_like_seconds_is_reported(
    text: str, is_reported: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that looks like seconds is still read as milliseconds; the message says how to write seconds."""
    assert read_moment_us(text, "--from") == int(text) * 1_000
    assert ("if it is seconds, write 2026-11-21T14:00:00Z" in capsys.readouterr().err) == is_reported


@pytest.mark.parametrize("text", ["-1h30m", "-PT1H30M"])
def test_a_moment_may_be_a_length_before_now(text: str) -> None:
    """A duration with a minus sign is that long ago, in any form of a duration."""
    before_us = time.time_ns() // 1_000
    read_us = read_moment_us(text, "--from")
    after_us = time.time_ns() // 1_000

    assert before_us <= read_us + 5_400_000_000 <= after_us


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01T00:00:00Z", "-2 hours", "-5", "9" * 30, "٣"])
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    """The message names the option and shows each form."""
    with pytest.raises(typer.BadParameter, match=r"--from.*-2h"):
        read_moment_us(text, "--from")


@pytest.mark.parametrize("us", [0, 1_795_269_600_000_000, 1_795_269_600_000_001])
def test_a_moment_is_shown_as_it_may_be_written(us: int) -> None:
    """A printed time can be given as input."""
    assert read_moment_us(time_text(us), "--from") == us


def test_a_moment_beyond_all_dates_is_still_shown() -> None:
    """A record's timestamp may be any number; one without a date is shown in microseconds."""
    assert time_text(10**18) == "1000000000000000000 us"
