"""What `strandline consume` reads and how it writes it: its options as values."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import typer

from strandline.cli.durations import read_moment_us

if TYPE_CHECKING:
    from strandline.records.codec import Headers, Record


# ---- read_range
# Where reading begins and where it ends: what `--offset` and `--until` of `consume` say.
#
# Invariant: the end is exclusive, as every offset here. A time is looked up at the leaders: the first record at or
# after it begins a range, or is the first beyond one.

OFFSET_FORMS = "beginning, end, N, -N for the last N of each partition, or @TIME"
UNTIL_FORMS = "end, N, or @TIME"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in ms since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Last:
    """So many offsets before the end, in each partition."""

    count: int


Start = Literal["beginning", "end"] | int | AtTime | Last
"""A number is an offset, in every partition."""

End = Literal["end"] | int | AtTime | None
"""A number is the first offset that is not read; None: reading never ends."""

_NAMED: dict[str, Literal["beginning", "end"]] = {"beginning": "beginning", "end": "end"}


def start_of(from_beginning: bool, offset: str | None, timestamp: str | None) -> Start:
    """Where reading begins; at the end if nothing is said.

    Raises:
        typer.BadParameter: more than one place is named, or one that is none.
    """
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --timestamp")
    if timestamp is not None:
        return AtTime(read_moment_us(timestamp, "--timestamp") // 1_000)
    if offset is None:
        return "beginning" if from_beginning else "end"
    if offset in _NAMED:
        return _NAMED[offset]
    if re.fullmatch(r"-[0-9]{1,18}", offset):
        return Last(int(offset[1:]))
    return _place(offset, "--offset", OFFSET_FORMS)


def end_of(stop_at_end: bool, until: str | None) -> End:
    """Where reading ends, if it does.

    Raises:
        typer.BadParameter: both options are given, or the place is none.
    """
    if stop_at_end and until is not None:
        raise typer.BadParameter("give --stop-at-end or --until; the first is --until end")
    if stop_at_end or until == "end":
        return "end"
    return None if until is None else _place(until, "--until", UNTIL_FORMS)


def _place(text: str, option: str, forms: str) -> int | AtTime:
    if re.fullmatch("[0-9]{1,18}", text):
        return int(text)
    if text.startswith("@"):
        return AtTime(read_moment_us(text[1:], option) // 1_000)
    try:
        return AtTime(read_moment_us(text, option) // 1_000)
    except typer.BadParameter:
        raise typer.BadParameter(f"{option}: {text!r} is not a place in a log; write {forms}") from None


# ---- record_format
# What `consume -f` writes of a record: text with letters after a percent sign, those of kcat and of rpk.
#
# Invariant: a format is read whole before the first record, so that a wrong letter is found at once. Nothing is added,
# no line feed either, as with kcat and rpk.

Write = Callable[[str, int, "Record"], bytes]
"""Topic, partition and record as bytes."""

FORMAT_HELP = (
    "Write records in this form: %t topic, %p partition, %o offset, %T or %d timestamp (ms), %k key, %v or %s value, "
    "%h headers, %K and %V or %S sizes (-1: null), %H number of headers, %% percent sign; \\n, \\t, \\r, \\0, \\xHH."
)

_TOKEN = re.compile(r"%(.)(\{)?|\\(?:x([0-9a-fA-F]{2})|(.))|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_LITERALS = "%{}"


def _size(content: bytes | None) -> bytes:
    return b"-1" if content is None else b"%d" % len(content)


def _timestamp(topic: str, partition: int, record: Record) -> bytes:
    return b"%d" % (-1 if record.timestamp_ms is None else record.timestamp_ms)


def _value(topic: str, partition: int, record: Record) -> bytes:
    return record.value or b""


def _value_size(topic: str, partition: int, record: Record) -> bytes:
    return _size(record.value)


def headers_text(headers: Headers) -> bytes:
    """`name=value,name=value`; the name alone for a header whose value is null."""
    return b",".join(name.encode() + (b"" if value is None else b"=" + value) for name, value in headers)


_LETTERS: dict[str, Write] = {
    "t": lambda topic, partition, record: topic.encode(),
    "p": lambda topic, partition, record: b"%d" % partition,
    "o": lambda topic, partition, record: b"%d" % record.offset,
    "T": _timestamp,
    "d": _timestamp,
    "k": lambda topic, partition, record: record.key or b"",
    "v": _value,
    "s": _value,
    "h": lambda topic, partition, record: headers_text(record.headers),
    "K": lambda topic, partition, record: _size(record.key),
    "V": _value_size,
    "S": _value_size,
    "H": lambda topic, partition, record: b"%d" % len(record.headers),
}


def read_format(text: str) -> Write:
    """The writer of a format.

    Raises:
        typer.BadParameter: a letter or an escape that is not known; names it, and those that are.
    """
    pieces: list[bytes | Write] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise typer.BadParameter(f"--format: {text!r} ends with a lone {text[at]!r}; write it twice")
        letter, brace, byte, escaped, plain = token.groups()
        if letter is not None:
            pieces.append(_percent(letter, brace))
        elif byte is not None:
            pieces.append(bytes.fromhex(byte))
        elif escaped is not None:
            pieces.append(_escape(escaped))
        else:
            pieces.append(os.fsencode(plain))
        # The brace behind %{ is text of its own.
        at = token.end() - bool(letter in tuple(_LITERALS) and brace)

    def write(topic: str, partition: int, record: Record) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(topic, partition, record) for piece in pieces)

    return write


def _percent(letter: str, brace: str | None) -> bytes | Write:
    if letter in _LITERALS:
        return letter.encode()
    if letter not in _LETTERS:
        raise typer.BadParameter(f"--format: %{letter} is not known; known are %{' %'.join(_LETTERS)} %%")
    if brace:
        raise typer.BadParameter(f"--format: %{letter} takes no braces; for a brace behind it write %{{")
    return _LETTERS[letter]


def _escape(letter: str) -> bytes:
    if letter not in _ESCAPES:
        raise typer.BadParameter(rf"--format: \{letter} is not known; known are \n \t \r \0 \\ and \xHH")
    return _ESCAPES[letter]


def json_line(topic: str, partition: int, record: Record) -> bytes:
    """A record as one line for programs."""
    return json.dumps(record_document(topic, partition, record)).encode() + b"\n"


def record_document(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """A record for programs. Bytes that are no UTF-8 are given in base64 under `..._base64`."""
    document: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
    }
    if record.headers:
        document["headers"] = [{"name": name, **_text("value", value)} for name, value in record.headers]
    return document


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
