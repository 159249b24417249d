"""Reads the lines of a text file, whether it comes from a shell, a terminal or log rotation, plain or compressed.

Invariant: at most the given number of characters of a line are held; damage is an `Unreadable` with file and line.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from strandline_kafka.metadata.wire import Unreadable

_Opened = Callable[[BinaryIO], io.BufferedIOBase]
_PACKED: tuple[tuple[bytes, _Opened | None], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", None),
    (b"PK\x03\x04", None),
)
"""The first bytes of compressed files, and their decompressors; zstd and zip are unsupported."""
_MARKED = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
"""The first bytes that mark the encoding of a text; PowerShell writes the second one."""
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Terminal sequences for colours, titles and movements."""


class LeftOut(NamedTuple):
    """Lines that could not be understood."""

    lines: int
    first: str
    """``file:line``."""

    def with_more(self, lines: int) -> LeftOut:
        """The sum with more lines."""
        return self._replace(lines=self.lines + lines)


class TextLine(NamedTuple):
    """One line, from number 1 on."""

    number: int
    text: str
    is_cut: bool
    """Whether the line was longer than the part that is held."""


def lines_of(path: Path, most: int) -> Iterator[TextLine]:
    """The lines of a file, without line ends, colours and zero characters.

    Args:
        most: the largest number of characters of a line that are held.

    Raises:
        Unreadable: the file has an unsupported or damaged compression.
    """
    number = 0
    with path.open("rb") as packed:
        file = _unpacked(path, packed)
        try:
            text = io.TextIOWrapper(file, encoding=_encoding(file), errors="replace", newline="\n")
            while line := text.readline(most):
                number += 1
                is_cut = len(line) == most and not line.endswith("\n")
                line = line.rstrip("\r\n")
                # Checked here as well, to save a call for each line.
                yield TextLine(number, uncoloured(line) if "\0" in line or "\x1b" in line else line, is_cut)
                while is_cut and (line := text.readline(most)) and not line.endswith("\n"):
                    pass
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise Unreadable(f"{path}: behind line {number} the compressed file is damaged: {error}") from error


def uncoloured(text: str) -> str:
    """A line without the characters that a terminal or a second encoding put between its own."""
    # A shell that appends UTF-16 to a text in another encoding leaves a zero after each character.
    text = text.replace("\0", "") if "\0" in text else text
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def _unpacked(path: Path, file: BinaryIO) -> io.BufferedReader:
    begin = file.read(6)
    file.seek(0)
    for first, opened in _PACKED:
        if begin.startswith(first):
            if opened is None:
                raise Unreadable(f"{path} is packed by zstd or zip, which are not read; unpack it first")
            return io.BufferedReader(cast("io.RawIOBase", opened(file)))
    return cast("io.BufferedReader", file)


def _encoding(file: io.BufferedReader) -> str:
    begin = file.peek(4)
    return next((name for first, name in _MARKED if begin.startswith(first)), "utf-8")
