"""`strandline consume`: where it begins and ends, and what it writes of a record."""

from __future__ import annotations

import sys
import time

import pytest
import typer

from strandline.cli.ask.consume import Printer, RecordForm, printer_of
from strandline.cli.ask.consume_options import AtTime, Last, end_of, read_format, start_of
from strandline.core.types import Offset
from strandline.records.codec import Record


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


RECORD = Record(Offset(5), 1_500, b"moon", b"spring", (("a", b"1"), ("b", None), ("c", b"")))
TOMBSTONE = Record(Offset(6), None, None, None, ())


def write(text: str, record: Record = RECORD) -> bytes:
    """One record of tides-2 in a format."""
    return read_format(text)("tides", 2, record)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (r"%t[%p]@%o %T %k %v %h\n", b"tides[2]@5 1500 moon spring a=1,b,c=\n"),
        ("%s %d", b"spring 1500"),
        ("%K %V %S %H", b"4 6 6 3"),
        (r"100%% %{%o%} %%{ \\ \t\r\0\x41\xff", b"100% {5} %{ \\ \t\r\0A\xff"),
        ("æ", "æ".encode()),
        ("", b""),
    ],
)
def test_letters_are_those_of_kcat_and_rpk(text: str, written: bytes) -> None:
    """Each letter of either tool gives its field, escapes give their byte, and nothing is added."""
    assert write(text) == written


def test_null_is_empty_and_its_size_is_below_zero() -> None:
    """The size distinguishes a tombstone from an empty value; a record without a timestamp has -1."""
    assert write("%k|%v|%h|%K|%V|%S|%H|%T", TOMBSTONE) == b"|||-1|-1|-1|0|-1"
    assert write("%V", RECORD._replace(value=b"")) == b"0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("%x", "%x is not known; known are %t"),
        ("50%", "ends with a lone '%'"),
        ("\\", "ends with a lone"),
        (r"\q", r"\\q is not known"),
        (r"\x1", r"\\x is not known"),
        ("%v{hex}", "takes no braces"),
    ],
)
def test_a_wrong_format_is_refused_before_the_first_record(text: str, said: str) -> None:
    """A letter or escape that is not known is named, with those that are."""
    with pytest.raises(typer.BadParameter, match=said):
        read_format(text)


@pytest.mark.parametrize(("output", "separator"), [(RecordForm.JSON, None), (RecordForm.TEXT, ":")])
def test_a_format_stands_alone(output: RecordForm, separator: str | None) -> None:
    """-f together with -o json or -K is rejected: one of them would be ignored."""
    with pytest.raises(typer.BadParameter, match="without"):
        printer_of(output, "%v", separator)


@pytest.mark.parametrize(
    ("is_terminal", "partitions", "line"),
    [(True, 2, "[2]@5 moon=spring\n"), (True, 1, "moon=spring\n"), (False, 2, "moon=spring\n")],
)
def test_people_see_where_a_record_lies(
    is_terminal: bool, partitions: int, line: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text on a terminal shows partition and offset where several partitions are read; a pipe gets the values."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    printer = Printer(key_separator="=")
    printer.read_from(partitions)
    printer.show("tides", 2, RECORD)
    sys.stdout.flush()

    assert capfd.readouterr().out == line
