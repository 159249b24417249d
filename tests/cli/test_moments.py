"""Times on the command line: the same words are the same time everywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import typer

from strandline.cli.durations import read_moment_us, time_text


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
