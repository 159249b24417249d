"""Turns an input line into a record: the line itself with options for its key and headers, or one json object.

Invariant: what `consume -o json` prints, `produce --input json` sends with the same key, value, headers and timestamp.
Where the record came from (`topic`, `partition`, `offset`) is not where it goes, and is not read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import typer

# ---- line_source
# Where `strandline produce` reads its lines: a file, a pipe, or a keyboard.
#
# Invariant: waiting for input never stops the event loop and never delays the end of the command: a line typed is
# sent when it is typed, and Ctrl-C works while nothing comes.

_CHUNK_BYTES = 1 << 18


@contextmanager
def open_source(file: Path | None) -> Iterator[int]:
    """The file descriptor of a file; of stdin for None and for `-`."""
    if file is None or str(file) == "-":
        yield sys.stdin.fileno()
        return
    with file.open("rb", buffering=0) as source:
        yield source.fileno()


async def lines_of(descriptor: int) -> AsyncIterator[bytes]:
    """The lines without their line feeds; a last line without one is a line too."""
    rest = b""
    async for chunk in _chunks(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            yield chunk
        return
    arriving: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)
    # A daemon, and reading past Python's own buffers: the process may end while it waits for a key.
    threading.Thread(target=_pump, args=(descriptor, arriving, asyncio.get_running_loop()), daemon=True).start()
    while chunk := await arriving.get():
        yield chunk


def _pump(descriptor: int, arriving: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Passes the input on piece by piece, with an empty piece at the end. Waits while the queue is full."""
    while True:
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(arriving.put(chunk), loop).result()
        if not chunk:
            return


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line; a line without the separator has no key."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


_ORIGIN = frozenset(("topic", "partition", "offset"))
_FIELDS = frozenset(("key", "key_base64", "value", "value_base64", "headers", "timestamp_ms"))
_HEADER_FIELDS = frozenset(("name", "value", "value_base64"))


class InputForm(StrEnum):
    """The format of input lines."""

    TEXT = "text"
    JSON = "json"


class BadLine(Exception):
    """A line is not a record; the message names the field and its valid form."""


class LineRecord(NamedTuple):
    """A record read from a line; ``timestamp_ms`` None means the time of sending."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


ReadLine = Callable[[bytes], LineRecord]
"""Raises `BadLine`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """Options for all records of a run: key or separator, headers, a time; a line may have fields of its own."""

    key: bytes | None = None
    separator: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    empty_is_tombstone: bool = False


def line_reader(form: InputForm, common: Common) -> ReadLine:
    """The reader of one run's lines.

    Raises:
        typer.BadParameter: options that contradict each other.
    """
    if common.key is not None and common.separator is not None:
        raise typer.BadParameter("give --key for the same key everywhere, or --key-separator, and not both")
    if form is InputForm.JSON:
        if common.separator is not None:
            raise typer.BadParameter("--key-separator splits lines of text; with --input json a key is a field")
        return lambda line: _of_document(line, common)
    return lambda line: _of_text(line, common)


def headers_of(entries: list[str]) -> tuple[tuple[str, bytes | None], ...]:
    """`["a=1"]` as headers; a name may come more than once, in order.

    Raises:
        typer.BadParameter: an entry is not NAME=VALUE.
    """
    headers = []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name or not _is_text(name):
            raise typer.BadParameter(f"--header: {entry!r} is not NAME=VALUE; write for example trace=42")
        headers.append((name, os.fsencode(value)))
    return tuple(headers)


def key_of(text: str | None) -> bytes | None:
    """The key that `-k` names.

    Raises:
        typer.BadParameter: it looks like a separator, which `-k` once was.
    """
    if text is not None and 0 < len(text) <= 2 and not any(letter.isalnum() for letter in text):
        raise typer.BadParameter(f"-k is the key, and {text!r} looks like a separator: that is -K")
    return None if text is None else os.fsencode(text)


def _is_text(text: str) -> bool:
    """Whether the text can be encoded; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_text(line: bytes, common: Common) -> LineRecord:
    key, value = (common.key, line) if common.key is not None else split_line(line, common.separator)
    return LineRecord(key, _value(value, common), common.headers, common.timestamp_ms)


def _value(value: bytes | None, common: Common) -> bytes | None:
    return None if value == b"" and common.empty_is_tombstone else value


def _of_document(line: bytes, common: Common) -> LineRecord:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadLine('it is not a JSON object; write for example {"key": "moon", "value": "spring"}')
    _check_fields(document, _FIELDS | _ORIGIN, "field")
    value = _bytes("value", document, missing="give value (null is a tombstone) or value_base64")
    key = _bytes("key", document) if document.keys() & {"key", "key_base64"} else common.key
    return LineRecord(key, _value(value, common), _headers(document) + common.headers, _timestamp(document, common))


def _headers(document: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    entries = document.get("headers", [])
    if not isinstance(entries, list):
        raise BadLine('headers is not a list; write [{"name": "trace", "value": "42"}]')
    headers = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not _is_text(entry["name"]):
            raise BadLine('a header is not an object with a name; write {"name": "trace", "value": "42"}')
        _check_fields(entry, _HEADER_FIELDS, "field of a header")
        headers.append((entry["name"], _bytes("value", entry, missing="a header has a value (or null)")))
    return tuple(headers)


def _timestamp(document: dict[str, Any], common: Common) -> int | None:
    timestamp_ms = document.get("timestamp_ms")
    if timestamp_ms is None:
        return common.timestamp_ms
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms < 1 << 63:
        raise BadLine("timestamp_ms is not a number of milliseconds since 1970")
    return timestamp_ms


def _bytes(name: str, document: dict[str, Any], *, missing: str = "") -> bytes | None:
    """The bytes in field `name` or `name_base64`, of which at most one may be present."""
    encoded = f"{name}_base64"
    if name in document and encoded in document:
        raise BadLine(f"{name} and {encoded} are both given; give one")
    if name not in document and encoded not in document:
        raise BadLine(missing)
    content = document.get(encoded) if encoded in document else document[name]
    if content is None and name in document:
        return None
    if not isinstance(content, str):
        raise BadLine(f"{name if name in document else encoded} is not a string; quote it, or give null for none")
    if name in document:
        if not _is_text(content):
            raise BadLine(f"{name} has half of a surrogate pair, which is not UTF-8; give {encoded}")
        return content.encode()
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise BadLine(f"{encoded} is not base64") from None


def _check_fields(document: dict[str, Any], known: frozenset[str], what: str) -> None:
    unknown = sorted(document.keys() - known)
    if unknown:
        raise BadLine(f"{unknown[0]!r} is not a {what}; known are {', '.join(sorted(known))}")
