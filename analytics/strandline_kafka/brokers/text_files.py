"""Lines of a text file, whatever it was packed by, redirected by, or printed to: shells, terminals, log rotation.

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
"""The first bytes of packed files, and what unpacks them; zstd and zip are not read."""
_MARKED = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
"""The first bytes by which a text names its encoding; PowerShell redirects as the second."""
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""What a terminal takes as a colour, a title or a movement."""


class LeftOut(NamedTuple):
    """Lines that nothing could be made of."""

    lines: int
    first: str
    """``file:line``."""

    def with_more(self, lines: int) -> LeftOut:
        """With some lines more."""
        return self._replace(lines=self.lines + lines)


class TextLine(NamedTuple):
    """One line, from number 1 on."""

    number: int
    text: str
    is_cut: bool
    """Whether it went on behind what is held of it."""


def lines_of(path: Path, most: int) -> Iterator[TextLine]:
    """The lines of a file, without what ends them, colours, and zero characters.

    Args:
        most: characters of a line that are held.

    Raises:
        Unreadable: the file is packed in a way that is not read, or its packing is damaged.
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
                # Asked here as well, to spare a call for each line.
                yield TextLine(number, uncoloured(line) if "\0" in line or "\x1b" in line else line, is_cut)
                while is_cut and (line := text.readline(most)) and not line.endswith("\n"):
                    pass
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise Unreadable(f"{path}: behind line {number} the compressed file is damaged: {error}") from error


def uncoloured(text: str) -> str:
    """A line without what a terminal or a second encoding put between its characters."""
    # A shell that appends in UTF-16 to a text that has none leaves a zero behind each character.
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
