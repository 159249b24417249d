"""Where `strandline consume` begins and ends."""

from __future__ import annotations

import time

import pytest
import typer

from strandline.cli.ask.consume_options import AtTime, Last, end_of, start_of


@pytest.mark.parametrize(
    ("offset", "start"),
    [
        (None, "end"),
        ("beginning", "beginning"),
        ("end", "end"),
        ("7", 7),
        ("-10", Last(10)),
        ("@2023-11-14T22:13:20", AtTime(1_700_000_000_000)),
        ("@1500", AtTime(1500)),
        ("2023-11-14T22:13:20Z", AtTime(1_700_000_000_000)),
    ],
)
def test_an_offset_names_where_reading_begins(offset: str | None, start: object) -> None:
    """Reading begins at the end unless given; a number is an offset, -N the last N, @TIME the first record since."""
    assert start_of(False, offset, None) == start


def test_other_options_say_the_same() -> None:
    """--from-beginning and --timestamp are places too, and two places are one too many."""
    assert start_of(True, None, None) == "beginning"
    assert start_of(False, None, "1500") == AtTime(1500)
    for given in ((True, "7", None), (False, "7", "1500"), (True, None, "1500")):
        with pytest.raises(typer.BadParameter, match="one of"):
            start_of(*given)


def test_a_length_before_now_is_a_time() -> None:
    """`@-2h` and `-2h` are two hours ago: a unit tells them from the last two records."""
    now_ms = time.time() * 1_000
    for text in ("@-2h", "-2h"):
        start = start_of(False, text, None)
        assert isinstance(start, AtTime)
        assert start.timestamp_ms == pytest.approx(now_ms - 7_200_000, abs=60_000)


@pytest.mark.parametrize(
    ("stop_at_end", "until", "end"),
    [
        (False, None, None),
        (True, None, "end"),
        (False, "end", "end"),
        (False, "7", 7),
        (False, "@1500", AtTime(1500)),
        (False, "2023-11-14T22:13:20", AtTime(1_700_000_000_000)),
    ],
)
def test_until_names_where_reading_ends(stop_at_end: bool, until: str | None, end: object) -> None:
    """Reading never ends unless given an end, an offset or a time."""
    assert end_of(stop_at_end, until) == end


@pytest.mark.parametrize("text", ["", "last", "1.5", "-", "@", "٣", str(1 << 63)])
def test_what_is_no_place_is_refused(text: str) -> None:
    """The message names the option and its forms, or those of a time."""
    with pytest.raises(typer.BadParameter, match=r"--offset.*(-N for the last N|-2h)"):
        start_of(False, text, None)
    with pytest.raises(typer.BadParameter, match="--until"):
        end_of(False, text)


def test_one_end_is_enough() -> None:
    """--stop-at-end together with --until is rejected, and the message says how they relate."""
    with pytest.raises(typer.BadParameter, match="--until end"):
        end_of(True, "7")
